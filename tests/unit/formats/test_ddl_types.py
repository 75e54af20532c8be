"""
DDL that the package has written becomes Arrow types without Spark.
"""

from __future__ import annotations

import base64

import pyarrow as pa
import pytest
from tests.broker.test_protobuf_topics import described

from pyspark_pykafka.formats.avro_schema import parse_avro
from pyspark_pykafka.formats.avro_types import avro_ddl
from pyspark_pykafka.formats.ddl_types import arrow_type
from pyspark_pykafka.formats.protobuf_schemas import parsed_schema, schema_from_option
from pyspark_pykafka.formats.protobuf_types import protobuf_ddl

NESTED = """{
  "type": "record", "name": "r", "fields": [
    {"name": "A1_b", "type": {"type": "array", "items": ["null", "int"]}},
    {"name": "m", "type": {"type": "map", "values": {"type": "bytes", "logicalType": "decimal",
      "precision": 9, "scale": 2}}},
    {"name": "t", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "l", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
    {"name": "u", "type": ["string", "double"]},
    {"name": "d", "type": {"type": "int", "logicalType": "date"}},
    {"name": "n", "type": "null"}
  ]
}"""


def test_types_of_an_avro_schema() -> None:
    """
    The DDL of nested types, logical types and unions is read back as Arrow types.
    """
    schema = parse_avro(NESTED)

    assert arrow_type(str(avro_ddl(schema))) == pa.struct(
        [
            ("A1_b", pa.list_(pa.int32())),
            ("m", pa.map_(pa.string(), pa.decimal128(9, 2))),
            ("t", pa.timestamp("us", tz="UTC")),
            ("l", pa.timestamp("us")),
            ("u", pa.struct([("member0", pa.string()), ("member1", pa.float64())])),
            ("d", pa.date32()),
        ]
    )


def test_names_in_quotes_and_without_colons() -> None:
    """
    A name in backticks may have any characters; top-level columns have no colons.
    """
    assert arrow_type("STRUCT<_raw BINARY, `a ``b`: INTERVAL DAY TO SECOND>") == pa.struct(
        [("_raw", pa.binary()), ("a `b", pa.duration("us"))]
    )


@pytest.mark.parametrize(
    "ddl", ["", "STRUCT<", "STRUCT<a: INT", "INT INT", "ARRAY<MOOD>", "STRUCT<a: INT; b: INT>"]
)
def test_other_ddl_is_an_error(ddl: str) -> None:
    """
    DDL that the package does not write is an error with the position.
    """
    with pytest.raises(ValueError, match="at position \\d+ of "):
        arrow_type(ddl)


def test_each_kind_of_protobuf_field_has_a_type() -> None:
    """
    The DDL of a message with a field of each kind is read to its end.
    """
    text = base64.b64encode(described().SerializeToString()).decode()
    message_schema = schema_from_option("value", text, "shop.Order")

    kind = arrow_type(protobuf_ddl(parsed_schema(message_schema.text), message_schema.message))

    assert kind.field("f4").type == pa.decimal128(20, 0)
    assert kind.field("span").type == pa.duration("us")
    part = pa.struct([("x", pa.int32()), ("s", pa.list_(pa.string()))])
    assert kind.field("counts").type == pa.map_(pa.string(), part)
