"""The pipeline's own components, one package each."""
