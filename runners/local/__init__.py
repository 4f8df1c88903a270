"""Runs the graph on this machine: TFX's LocalDagRunner in a child process, watched by its parent.

`runner` and `launcher` execute the graph and say what happens as events; `worker` is the child's
entry; `supervisor` starts the child, follows its events and ends it with everything it started.
"""
