"""
The values, the schema registry and the checks of the benchmark of typed topics.
"""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from bench.arguments import parse
from bench.cases import TopicSpec
from bench.documents import (
    FIELDS,
    FIVE,
    MESSAGE_NAME,
    MESSAGE_PREFIX,
    PREFIX,
    SCHEMA_ID,
    TEXT_LENGTHS,
    avro_schema,
    documents,
    records,
)
from bench.figures import IncompleteError
from bench.measurement import Measurement, Series
from bench.registry import running_registry
from bench.report import table
from bench.results import Results
from bench.throughput import WrongReadError
from bench.typed import TypedBench, TypedCase, check_same_values, registry_of
from bench.typed_ceiling import TypedCeiling

from pyspark_pykafka.formats.bad_records import BadRecordPolicy
from pyspark_pykafka.formats.ddl_types import arrow_type
from pyspark_pykafka.formats.default_columns import default_ddl
from pyspark_pykafka.formats.protobuf_decoder import ProtobufColumn
from pyspark_pykafka.formats.protobuf_schemas import schema_from_option
from pyspark_pykafka.formats.registered_schemas import with_registered_schemas
from pyspark_pykafka.options import FormatOptions, RegistryOptions, Subscribe
from pyspark_pykafka.registry.client import schema_registry

TOPIC = TopicSpec(1024, "none", 2, 7, "avro")
CASE = TypedCase("avro", FIVE, TOPIC)
SAME = dict.fromkeys(("jvm", "pykafka-from_avro", "typed", "ceiling"), (7, 5))


@pytest.mark.parametrize("kind", ["json", "avro", "protobuf"])
def test_documents_have_about_1_kb(kind: str) -> None:
    """
    Every run has the same values, all different and of nearly one size.
    """
    values = documents(kind)

    assert 960 <= min(map(len, values)) <= max(map(len, values)) <= 1060
    assert len(set(values)) == len(values)
    assert values == documents(kind)


def test_json_documents_are_the_records() -> None:
    """
    A JSON value has the fields of its record; every second value lacks the optional field.
    """
    decoded = [json.loads(value) for value in documents("json")]

    assert decoded == records(TEXT_LENGTHS["json"])
    assert list(decoded[1]) == list(FIELDS)
    assert list(decoded[0]) == list(FIELDS)[:-1]


def test_avro_documents_are_the_records() -> None:
    """
    After the prefix with the schema's id, fastavro reads the fields of the record.
    """
    schema = fastavro.parse_schema(json.loads(avro_schema(FIELDS)))

    for value, record in zip(documents("avro"), records(TEXT_LENGTHS["avro"]), strict=True):
        assert struct.unpack_from(">bi", value) == (0, SCHEMA_ID)
        body = io.BytesIO(value[len(PREFIX) :])
        assert fastavro.schemaless_reader(body, schema, None) == {"optional": None, **record}
        assert not body.read()


def test_protobuf_documents_are_the_records() -> None:
    """
    After the prefix with the schema's id, the connector reads the fields of the record.
    """
    with registry_of("protobuf") as url:
        registry = RegistryOptions((url,))
        options = FormatOptions(value_format="protobuf", registry=registry)
        found = with_registered_schemas(options, Subscribe(("t",)), derives_columns=True)
    ddl = ", ".join(f"`{name}`: {kind}" for name, kind in FIELDS.items())
    assert f" value STRUCT<{ddl}>," in str(default_ddl(found, include_headers=False))
    kind = arrow_type(f"STRUCT<{ddl}>")
    schema = schema_from_option("value", found.schemas["value"] or "", MESSAGE_NAME)
    column = ProtobufColumn("value", kind, schema, 1 << 20, BadRecordPolicy("null"))
    values = documents("protobuf")
    assert {value[: len(MESSAGE_PREFIX)] for value in values} == {PREFIX + b"\0"}
    bodies = pa.array([value[len(MESSAGE_PREFIX) :] for value in values], pa.binary())

    rows: list[dict[str, Any]] = []
    while len(rows) < len(values):
        column.decode(bodies, len(rows), len(values))
        rows += column.take().to_pylist()

    nothing = dict.fromkeys(FIELDS)
    assert rows == [nothing | record for record in records(TEXT_LENGTHS["protobuf"])]
    assert column.take_bad() == []


def test_reader_schema_has_the_chosen_fields() -> None:
    """
    The reader's schema has five of the writer's fields, and the writer's schema resolves to it.
    """
    fields = json.loads(avro_schema(FIVE))["fields"]

    assert [field["name"] for field in fields] == list(FIVE)
    assert fields[-1]["type"] == ["null", "long"]


def test_registry_has_the_schema() -> None:
    """
    The connector's client finds the schema by its id, and as the latest schema of any subject.
    """
    schema = avro_schema(FIELDS)
    with running_registry(schema, SCHEMA_ID) as url:
        client = schema_registry(RegistryOptions((url,)))

        assert client.schema_by_id(SCHEMA_ID).schema.text == schema
        assert client.latest("topic-value").id == SCHEMA_ID


@pytest.mark.parametrize("name", ["pykafka-from_avro", "typed"])
def test_different_values_are_refused(name: str) -> None:
    """
    The message names the contender whose checksum is not that of the JVM connector.
    """
    check_same_values(SAME, CASE)
    with pytest.raises(WrongReadError, match="typed and the ceiling read different"):
        check_same_values({"typed": (7, 6), "ceiling": (7, 5)}, CASE)
    with pytest.raises(WrongReadError, match=f"^{name} and the JVM connector read different"):
        check_same_values({**SAME, name: (7, 6)}, CASE)


def test_missing_values_are_refused() -> None:
    """
    A checksum over too few records is refused, even if all contenders have it.
    """
    with pytest.raises(IncompleteError, match="delivered 6 records instead of 7"):
        check_same_values(dict.fromkeys(SAME, (6, 5)), CASE)


def test_cases_name_their_format() -> None:
    """
    Cases, contenders and topics of the formats differ; JSON does not use the registry.
    """
    as_json = TypedCase("json", tuple(FIELDS), TopicSpec(1024, "none", 2, 7, "json"))

    assert (CASE.name, as_json.name) == ("avro-1KB-5-fields", "json-1KB-20-fields")
    assert bench().contenders(CASE) == list(SAME)
    assert bench().contenders(as_json) == ["jvm", "pykafka-from_json", "typed", "ceiling"]
    assert (TOPIC.name, as_json.topic.name) == ("bench-1024-none-2-avro", "bench-1024-none-2-json")
    assert CASE.typed_options("http://r")["schema.registry.url"] == "http://r"
    assert "schema.registry.url" not in as_json.typed_options("http://r")
    assert CASE.ddl.startswith("long0 BIGINT, double1 DOUBLE, text2 STRING")


def bench(*, has_function: bool = True) -> TypedBench:
    nothing: Any = None
    return TypedBench(nothing, "", "", 1, has_function)


def test_rows_name_what_is_left_out() -> None:
    """
    Without the jar of Spark's function, the contenders that need it are not measured, and the
    table says so.
    """
    case = TypedCase("protobuf", FIVE, TopicSpec(1024, "none", 2, 7, "protobuf"))
    without = bench(has_function=False)
    series = {name: Series((1.0,)) for name in without.contenders(case)}
    measured = Measurement(case.name, "typed", series, 7, without.left_out(case))

    assert bench().contenders(case) == ["jvm", "pykafka-from_protobuf", "typed", "ceiling"]
    assert bench().left_out(case) == {}
    assert list(series) == ["typed", "ceiling"]
    lines = table(Results("t", {}, [measured])).splitlines()[1:]
    assert [" ".join(line.split()[1:3]) for line in lines] == [
        "jvm left",
        "pykafka-from_protobuf left",
        "typed 7",
        "ceiling 7",
    ]
    assert "left out: no jar" in lines[0]


def test_formats_can_be_chosen() -> None:
    """
    By default all formats are measured; `--formats` selects one.
    """
    assert parse([], "unnamed").formats == ("json", "avro", "protobuf")
    plan = parse(["--parts", "typed", "--formats", "avro", "--records", "9"], "unnamed")
    assert (plan.formats, plan.records) == (("avro",), 9)


@pytest.mark.parametrize("count", [1, 996, 997, 5000])
def test_ceiling_yields_the_records_of_the_topic(count: int) -> None:
    """
    Both partitions together have the requested number of rows, which repeat the fields of the
    topic's records in the same order.
    """
    names = ("long0", "text2", "optional")
    options = {"records": str(count), "format": "avro", "fields": ",".join(names)}
    reader: Any = TypedCeiling(options).reader(None)
    documents = records(TEXT_LENGTHS["avro"])

    batches = [batch for part in reader.partitions() for batch in reader.read(part)]

    rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    cycle = [tuple(document.get(name) for name in names) for document in documents]
    assert rows == [cycle[number % len(cycle)] for number in range(count)]
