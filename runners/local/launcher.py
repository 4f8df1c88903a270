"""TFX's launcher of one component, with events for what it decides and what comes of it."""

import time
from typing import Any

from tfx.orchestration import metadata
from tfx.orchestration.portable import data_types
from tfx.orchestration.portable import launcher as tfx_launcher
from tfx.proto.orchestration import executable_spec_pb2
from tfx.types import Artifact

from foundation.errors import PipelineError
from foundation.events import emit
from runners.local.cache_reason import reason_to_run
from runners.local.failure import explain

Outputs = dict[str, list[Artifact]]


class WatchedLauncher(tfx_launcher.Launcher):
    """Launches a node; emits `component_started`, then cached, or running and done, or failed."""

    def __init__(self, *args: Any, mlmd_connection: metadata.Metadata, **kwargs: Any):
        """As TFX's Launcher."""
        super().__init__(*args, mlmd_connection=mlmd_connection, **kwargs)
        self._metadata = mlmd_connection
        self._component = self._pipeline_node.node_info.id
        self._cached = False
        self._executor_spec: Any = _without_beam_arguments(self._executor_spec)

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
            cause, _ = explain(error)
            emit("component_failed", component=self._component, seconds=time.monotonic() - started, error=cause)
            raise
        kind = "component_cached" if self._cached else "component_done"
        emit(kind, component=self._component, seconds=time.monotonic() - started)
        return info

    def _prepare_execution(self) -> Any:
        """TFX's decision whether to run; the place where it is known."""
        prepared = super()._prepare_execution()
        if prepared.is_execution_needed:
            if self._pipeline_node.execution_options.caching_options.enable_cache:
                with self._metadata as handle:
                    reason = reason_to_run(
                        handle.store, self._pipeline_info.id, self._component, prepared.execution_info
                    )
            else:
                reason = "without the cache"
            emit("component_running", component=self._component, reason=reason)
        elif prepared.execution_info.output_dict:
            self._cached = True
        else:  # TFX logs this and goes on, and every later component fails the same way
            raise PipelineError(
                f"{self._component}: its inputs are not there; run the pipeline from its start (without --from), "
                "the log names the missing artifact"
            )
        return prepared


def _without_beam_arguments(executor_spec: Any) -> Any:
    """The part of an executor's description that decides what it makes.

    It enters the cache's key, while the operator that runs the executor has its own copy: how many workers Beam
    has changes nothing of what it makes, so it must not make everything run again.
    """
    if not isinstance(executor_spec, executable_spec_pb2.BeamExecutableSpec):
        return executor_spec
    decisive = executable_spec_pb2.BeamExecutableSpec()
    decisive.CopyFrom(executor_spec)
    decisive.ClearField("beam_pipeline_args")
    decisive.ClearField("beam_pipeline_args_placeholders")
    return decisive
