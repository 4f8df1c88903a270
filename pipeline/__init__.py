"""The graph and its typed configuration."""
