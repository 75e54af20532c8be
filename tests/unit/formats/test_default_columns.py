"""
The columns of a read with decoded values, if the user gives no schema.
"""

from __future__ import annotations

import pytest

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.formats.default_columns import default_ddl
from pyspark_pykafka.options import parse_source

READ = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "flatten": "true"}
OWN = "_topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("id BIGINT NOT NULL, b INT", "id BIGINT, b INT"),
        ("id: ARRAY<STRUCT<x: INT not  null>> NOT NULL", "id: ARRAY<STRUCT<x: INT>>"),
        ("STRUCT<id: BIGINT NOT NULL COMMENT 'x'>", "id: BIGINT COMMENT 'x'"),
        ("`a NOT NULL``` INT", "`a NOT NULL``` INT"),
        (r"a INT COMMENT 'is\' NOT NULL' NOT NULL", r"a INT COMMENT 'is\' NOT NULL'"),
        (
            '{"type":"struct","fields":[{"name":"a","type":"long","nullable":false}]}',
            "`a`: long",
        ),
    ],
)
def test_decoded_fields_are_nullable(text: str, columns: str) -> None:
    """
    A record may lack any field, so NOT NULL in a schema has no effect, as in ``from_json``.
    """
    options = parse_source({**READ, "valueFormat": "json", "valueSchema": text})

    ddl = default_ddl(options.formats, include_headers=False)

    assert ddl == f"STRUCT<{columns}, {OWN}>"


MARKER = '{"type": "record", "name": "Marker", "fields": []}'


@pytest.mark.parametrize(
    "schema", ['"null"', MARKER, f'{{"type": "array", "items": ["null", {MARKER}]}}']
)
def test_avro_without_values_has_no_columns(schema: str) -> None:
    """
    If no value of an Avro schema has content, the error says so, and what to do instead.
    """
    options = parse_source(
        {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
        | {"valueFormat": "avro", "valueSchema": schema}
    )

    reason = "the Avro schema of value has only records without fields and the type null, so it"
    with pytest.raises(OptionsError, match=reason):
        default_ddl(options.formats, include_headers=False)
