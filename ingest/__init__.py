"""Ingest: raw files in, sharded TFRecord documents in `span-N/` out. Stands before the graph."""
