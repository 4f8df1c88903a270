"""The child process that runs the graph: `python -m runners.local.worker`.

Its parent (`supervisor`) sends its output to the log and follows its events. It never outlives its parent.
"""

import argparse
import sys

from foundation.errors import PipelineError
from foundation.events import emit
from foundation.processes import die_with_parent
from runners.local.failure import explain

_DAMAGED_RECORD = "Not a valid TFRecord"
"""What Beam's reader says of one."""


def main(arguments: list[str] | None = None) -> int:
    """Runs the pipeline of a configuration; the exit code is that of the error's class."""
    parser = argparse.ArgumentParser(prog="runners.local.worker")
    parser.add_argument("--config", required=True)
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    parser.add_argument("--from", action="append", default=[], dest="from_nodes")
    parser.add_argument("--to", action="append", default=[], dest="to_nodes")
    parser.add_argument("--no-cache", action="store_true")
    parser.add_argument("--rebaseline", action="store_true")
    parser.add_argument("--parent", type=int)
    options = parser.parse_args(arguments)
    if options.parent:
        die_with_parent(options.parent)
    try:
        _run(options)
    except Exception as error:  # noqa: BLE001 - the last frame: everything ends as one line and an exit code
        import traceback

        traceback.print_exc()
        cause, exit_code = explain(error)
        emit("run_finished", ok=False, error=cause, exit_code=exit_code)
        return exit_code
    emit("run_finished", ok=True)
    return 0


def _run(options: argparse.Namespace) -> None:
    emit("note", text="starting TensorFlow Extended ...")
    from ingest.verify import check_shards
    from pipeline.config import load_config
    from pipeline.graph import create_pipeline
    from runners.local.runner import run_pipeline
    from runners.local.summary import summarize

    config = load_config(options.config, options.overrides)
    config.root.mkdir(parents=True, exist_ok=True)
    pipeline = create_pipeline(config, options.rebaseline)
    pipeline.enable_cache = not options.no_cache
    known = [component.id for component in pipeline.components]
    for name in (*options.from_nodes, *options.to_nodes):
        if name not in known:
            raise PipelineError(f"no component named {name!r}; known: {', '.join(known)}")
    check_shards(config.documents_folder, config.corpus.span)
    try:
        outputs = run_pipeline(pipeline, options.from_nodes, options.to_nodes)
    except Exception as error:
        if _DAMAGED_RECORD in str(error):  # and of which file, Beam does not say
            check_shards(config.documents_folder, config.corpus.span, contents=True)
        raise
    emit("summary", **summarize(outputs))


if __name__ == "__main__":
    sys.exit(main())
