"""Corpora of a few documents, as CorpusGen would have written them, and the gate over them."""

import gzip
import pickle

import apache_beam as beam
from tensorflow.core.example import example_pb2

from components.corpus_gate.counting import CountDocuments
from components.corpus_gate.executor import _keep
from foundation.tfrecord import frame_one


def example(doc_id, text, source="web"):
    made = example_pb2.Example()
    for name, value in (("doc_id", doc_id), ("text", text), ("source", source)):
        made.features.feature[name].bytes_list.value.append(value.encode() if isinstance(value, str) else value)
    return made.SerializeToString()


def write_split(folder, documents, shards=1):
    """documents: (doc_id, text) or (doc_id, text, source). Gives the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for shard in range(shards):
        path = folder / f"data_tfrecord-{shard:05d}-of-{shards:05d}.gz"
        with gzip.open(path, "wb") as file:
            for document in documents[shard::shards]:
                file.write(frame_one(example(*document)))
        paths.append(str(path))
    return paths


def facts_of(tmp_path, splits, max_document_bytes=1000, shards=1, options=()):
    """What the gate counts in splits of documents."""
    files = [
        (split, path)
        for split, documents in splits.items()
        for path in write_split(tmp_path / split, documents, shards)
    ]
    result = tmp_path / "facts.pickle"
    with beam.Pipeline(runner="FnApiRunner", options=beam.options.pipeline_options.PipelineOptions(list(options))) as p:
        _ = p | beam.Create(files) | CountDocuments(max_document_bytes) | beam.Map(_keep, str(result))
    return pickle.loads(result.read_bytes())
