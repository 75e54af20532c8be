"""
The columns of a read with decoded values, if the user gives no schema.
"""

from __future__ import annotations

import json

import pytest

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.formats.default_columns import default_ddl
from pyspark_pykafka.options import parse_source
from pyspark_pykafka.schema import SOURCE_TYPES

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


def flat(kind: str, schema: str, **options: str) -> str | None:
    given = {"valueFormat": kind, "valueSchema": schema, **options}
    return default_ddl(parse_source({**READ, **given}).formats, include_headers=True)


def avro_record(*names: str) -> str:
    fields = [{"name": name, "type": "string"} for name in names]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


@pytest.mark.parametrize(
    "name", [*(f"_{name}" for name in SOURCE_TYPES if name != "value"), "_raw", "_error"]
)
def test_fields_with_the_name_of_a_records_column(name: str) -> None:
    """
    With ``flatten`` a field of the value must not have the name of a column of the record: its
    column would have the record's content.
    """
    reason = f"flatten is true, but the value has the field '{name}', .* set flatten to false"

    with pytest.raises(OptionsError, match=reason):
        flat("avro", avro_record("id", name))
    with pytest.raises(OptionsError, match=reason):
        flat("json", f"id DECIMAL(9, 2) COMMENT 'a, b', `{name}` MAP<STRING, INT>")


def test_other_fields_may_begin_like_a_records_column() -> None:
    """
    Nested fields, fields with other names, and ``_rescued`` without ``onUnknownField`` are allowed.
    """
    assert "`_rescued`: STRING" in str(flat("avro", avro_record("_rescued", "_id", "_value")))
    assert "a STRUCT<_key: INT>" in str(flat("json", "a STRUCT<_key: INT>, b INT COMMENT ', _key'"))
    with pytest.raises(OptionsError, match="has the field '_rescued'"):
        flat("json", "id INT, _rescued STRING", onUnknownField="rescue")
