"""The registry: blessed models in a folder tree that TensorFlow Serving can watch.

`registry` is the tree itself, without TFX; `record` says where a version comes from; `executor` and
`component` are the Pusher that fills it.
"""
