"""Differences between the curated and the inferred schema, in words."""

import pytest
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from runners.cli.schema_command import differences

TEXT = 'feature { name: "text" type: BYTES presence { min_fraction: 1 } shape { dim { size: 1 } } }'
SOURCE = 'feature { name: "source" type: BYTES presence { min_fraction: 1 } shape { dim { size: 1 } } }'
CURATED = TEXT.replace("presence", "natural_language_domain {} presence") + SOURCE


def schema(text):
    return text_format.Parse(text, schema_pb2.Schema())


@pytest.mark.parametrize(
    ("inferred", "expected"),
    [
        (CURATED, []),
        (TEXT + SOURCE, []),  # a domain is what no inference knows
        (
            CURATED + 'feature { name: "label" type: INT presence { min_fraction: 1 } }',
            ["label: in documents, but not in the schema"],
        ),
        (
            TEXT + SOURCE.replace("source", "origin"),
            ["source: in the schema, but in no document", "origin: in documents, but not in the schema"],
        ),
        (TEXT + SOURCE.replace("BYTES", "INT"), ["source: BYTES in the schema, INT in documents"]),
        (
            'feature { name: "text" type: BYTES presence { min_count: 1 } value_count { min: 1 max: 3 } }' + SOURCE,
            [
                "text: required in 100% of documents, not present in all",
                "text: one value in the schema, up to 3 in documents",
            ],
        ),
    ],
)
def test_each_difference_is_one_line(inferred, expected):
    assert differences(schema(CURATED), schema(inferred)) == expected
