"""TFX's launcher of one component, with events for what it decides and what comes of it."""

import time
from typing import Any

from tfx.orchestration import metadata
from tfx.orchestration.portable import data_types
from tfx.orchestration.portable import launcher as tfx_launcher
from tfx.types import Artifact

from foundation.errors import PipelineError
from foundation.events import emit
from runners.local.cache_reason import reason_to_run

Outputs = dict[str, list[Artifact]]


class WatchedLauncher(tfx_launcher.Launcher):
    """Launches a node; emits `component_started`, then cached, or running and done, or failed."""

    def __init__(self, *args: Any, mlmd_connection: metadata.Metadata, **kwargs: Any):
        """As TFX's Launcher."""
        super().__init__(*args, mlmd_connection=mlmd_connection, **kwargs)
        self._metadata = mlmd_connection
        self._component = self._pipeline_node.node_info.id
        self._cached = False

    def launch(self) -> data_types.ExecutionInfo | None:
        """Runs the component, or finds its outputs in the cache.

        Raises:
          Exception: whatever the component's executor raised.
        """
        started = time.monotonic()
        emit("component_started", component=self._component)
        try:
            info = super().launch()
        except Exception as error:
            emit("component_failed", component=self._component, seconds=time.monotonic() - started, error=str(error))
            raise
        kind = "component_cached" if self._cached else "component_done"
        emit(kind, component=self._component, seconds=time.monotonic() - started)
        return info

    def _prepare_execution(self) -> Any:
        """TFX's decision whether to run; the place where it is known."""
        prepared = super()._prepare_execution()
        if prepared.is_execution_needed:
            with self._metadata as handle:
                reason = reason_to_run(handle.store, self._pipeline_info.id, self._component, prepared.execution_info)
            emit("component_running", component=self._component, reason=reason)
        elif prepared.execution_info.output_dict:
            self._cached = True
        else:  # TFX logs this and goes on, and every later component fails the same way
            raise PipelineError(
                f"{self._component}: its inputs are not there; run the pipeline from its start (without --from), "
                "the log names the missing artifact"
            )
        return prepared
