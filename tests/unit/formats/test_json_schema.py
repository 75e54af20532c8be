"""
The columns of a JSON Schema.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyspark_pykafka.formats.json_schema import json_schema_ddl

ADDRESS: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "ddl"),
    [
        ({"type": "integer"}, "BIGINT"),
        ({"type": ["null", "number"]}, "DOUBLE"),
        ({"type": ["integer", "string"]}, "STRING"),
        ({"type": "array", "items": {"type": "boolean"}}, "ARRAY<BOOLEAN>"),
        ({"additionalProperties": {"type": "string"}, "type": "object"}, "MAP<STRING, STRING>"),
        ({"oneOf": [{"type": "null"}, {"type": "string", "format": "date"}]}, "DATE"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "STRING"),
        ({"$ref": "#/definitions/Address"}, "STRUCT<`city`: STRING>"),
        # The path of a reference is a part of a URL.
        ({"$ref": "#/definitions/A%20zip~1code"}, "BIGINT"),
        ({"$ref": "#/definitions/Pair/oneOf/1"}, "BIGINT"),
        ({"$ref": "#/definitions/Pair/oneOf/2"}, "STRING"),
        ({"$ref": "other.json"}, "STRING"),
        # How pydantic writes a property of another class with a title or a description.
        ({"title": "Address", "allOf": [{"$ref": "#/definitions/Address"}]}, ADDRESS),
        ({"allOf": [ADDRESS, {"type": "object", "properties": {}}]}, "STRING"),
        ({"type": "object", "allOf": [{"required": ["city"]}], **ADDRESS}, ADDRESS),
    ],
)
def test_type_of_a_property(schema: dict[str, Any], ddl: str | dict[str, Any]) -> None:
    """
    A property has the type of its schema, or of the schema to which its schema refers. A schema
    that allows several types gives a STRING.
    """
    definitions = {
        "Address": ADDRESS,
        "A zip/code": {"type": "integer"},
        "Pair": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
    }
    document = {"type": "object", "properties": {"p": schema}, "definitions": definitions}

    expected = "STRUCT<`city`: STRING>" if isinstance(ddl, dict) else ddl
    assert json_schema_ddl(json.dumps(document)) == f"STRUCT<`p`: {expected}>"


def test_recursive_json_schema() -> None:
    """
    A JSON Schema that contains itself has no columns.
    """
    tree = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}

    with pytest.raises(ValueError, match="more than 100 levels, or contains itself"):
        json_schema_ddl(json.dumps(tree))


def test_json_schema_with_too_many_types() -> None:
    """
    A small JSON Schema in which each type uses the next one twice is an error, and is not written
    as 2**40 columns.
    """
    levels = {
        str(level): {"properties": {n: {"$ref": f"#/$defs/{level + 1}"} for n in ("a", "b")}}
        for level in range(40)
    }
    document = {"$ref": "#/$defs/0", "$defs": {**levels, "40": {"type": "string"}}}

    with pytest.raises(ValueError, match="it has more than 100000 types"):
        json_schema_ddl(json.dumps(document))


def test_names_that_no_column_can_have() -> None:
    """
    A name with half of a surrogate pair cannot be the name of a column.
    """
    with pytest.raises(ValueError, match="half of a surrogate pair"):
        json_schema_ddl(r'{"properties": {"\ud800": {"type": "string"}}}')
