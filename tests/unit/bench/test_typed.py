"""
The values, the schema registry and the checks of the benchmark of typed topics.
"""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import fastavro
import pytest
from bench.arguments import parse
from bench.cases import TopicSpec
from bench.documents import (
    FIELDS,
    FIVE,
    PREFIX,
    SCHEMA_ID,
    TEXT_LENGTHS,
    avro_schema,
    documents,
    records,
)
from bench.figures import IncompleteError
from bench.registry import running_registry
from bench.throughput import WrongReadError
from bench.typed import TypedCase, check_same_values
from bench.typed_ceiling import TypedCeiling

from pyspark_pykafka.options import RegistryOptions
from pyspark_pykafka.registry.client import schema_registry

TOPIC = TopicSpec(1024, "none", 2, 7, "avro")
CASE = TypedCase("avro", FIVE, TOPIC)
SAME = dict.fromkeys(("jvm", "pykafka-from_avro", "typed", "ceiling"), (7, 5))


@pytest.mark.parametrize("kind", ["json", "avro"])
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
    A JSON value has the fields of its record; every other one lacks the optional field.
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


def test_reader_schema_has_the_chosen_fields() -> None:
    """
    The reader's schema has five of the writer's fields, and the writer's schema resolves to it.
    """
    fields = json.loads(avro_schema(FIVE))["fields"]

    assert [field["name"] for field in fields] == list(FIVE)
    assert fields[-1]["type"] == ["null", "long"]


def test_registry_has_the_schema() -> None:
    """
    The connector's client finds the schema by its id, and as the latest one of any subject.
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
    Cases, contenders and topics of both formats differ; only Avro uses the registry.
    """
    as_json = TypedCase("json", tuple(FIELDS), TopicSpec(1024, "none", 2, 7, "json"))

    assert (CASE.name, as_json.name) == ("avro-1KB-5-fields", "json-1KB-20-fields")
    assert CASE.contenders == list(SAME)
    assert as_json.contenders == ["jvm", "pykafka-from_json", "typed", "ceiling"]
    assert (TOPIC.name, as_json.topic.name) == ("bench-1024-none-2-avro", "bench-1024-none-2-json")
    assert CASE.typed_options("http://r")["schema.registry.url"] == "http://r"
    assert "schema.registry.url" not in as_json.typed_options("http://r")
    assert CASE.ddl.startswith("long0 BIGINT, double1 DOUBLE, text2 STRING")


def test_formats_can_be_chosen() -> None:
    """
    By default both formats are measured; `--formats` selects one.
    """
    assert parse([], "unnamed").formats == ("json", "avro")
    plan = parse(["--parts", "typed", "--formats", "avro", "--records", "9"], "unnamed")
    assert (plan.formats, plan.records) == (("avro",), 9)


@pytest.mark.parametrize("count", [1, 996, 997, 5000])
def test_ceiling_yields_the_records_of_the_topic(count: int) -> None:
    """
    Both partitions together have the fields of the first records, as often as the topic has them.
    """
    names = ("long0", "text2", "optional")
    options = {"records": str(count), "format": "avro", "fields": ",".join(names)}
    reader: Any = TypedCeiling(options).reader(None)
    documents = records(TEXT_LENGTHS["avro"])

    batches = [batch for part in reader.partitions() for batch in reader.read(part)]

    rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    cycle = [tuple(document.get(name) for name in names) for document in documents]
    assert rows == [cycle[number % len(cycle)] for number in range(count)]
