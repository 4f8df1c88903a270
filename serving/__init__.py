"""The development server: TensorFlow Serving's protocols over the newest model in the registry."""
