"""
Topics of a schema registry: bytes of Confluent's own serializers, as typed columns in Spark.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    header_schema_id_serializer,
    prefix_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import functions as F  # noqa: N812
from tests.support.schema_registry import FakeRegistry, Fault, framed, running_registry

from pyspark_pykafka.testing import KafkaCluster, Record
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

OLD: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "com.shop",
    "fields": [{"name": "id", "type": "int"}, {"name": "who", "type": ["null", "string"]}],
}
NEW: dict[str, Any] = OLD | {
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "who", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["none"]},
    ]
}
GROWN = OLD | {"fields": [*OLD["fields"], NEW["fields"][-1]]}
JSON_SCHEMA = {
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "who": {"type": "string"}},
}


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with running_registry(FakeRegistry(user_info="me:secret")) as running:
        yield running


class Orders:
    """
    A topic that Confluent's serializers write, and loaders of it.
    """

    def __init__(
        self, spark: SparkSession, cluster: KafkaCluster, registry: FakeRegistry, name: str
    ) -> None:
        self._cluster = cluster
        self._spark = spark
        self.name = name
        host = registry.url.removeprefix("http://")
        self.client = SchemaRegistryClient({"url": f"http://me:secret@{host}"})
        self.options = {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "subscribe": name,
            **registry.options(),
            "schema.registry.basic.auth.user.info": "me:secret",
        }

    def send(self, *records: Record) -> None:
        self._cluster.produce(self.name, list(records))

    def avro(self, schema: Any, value: Any, *, in_header: bool = False) -> Record:
        """
        Return a record as Confluent's serializer makes it, with the id in a prefix or in a header.
        """
        number = header_schema_id_serializer if in_header else prefix_schema_id_serializer
        serializer = AvroSerializer(
            self.client, json.dumps(schema), conf={"schema.id.serializer": number}
        )
        headers: list[tuple[str, bytes]] = []
        context = SerializationContext(self.name, MessageField.VALUE, headers)
        return Record(serializer(value, context), headers=tuple(headers))

    def json(self, value: Any) -> Record:
        serializer = JSONSerializer(json.dumps(JSON_SCHEMA), self.client)
        return Record(serializer(value, SerializationContext(self.name, MessageField.VALUE)))

    def batch(self, schema: str | None = None, **options: str) -> DataFrame:
        reader = self._spark.read.format("pykafka").options(**(self.options | options))
        return (reader.schema(schema) if schema else reader).load()

    def raw(self, topic: str) -> DataFrame:
        reader = self._spark.read.format("pykafka").options(subscribe=topic, includeHeaders="true")
        return reader.option("kafka.bootstrap.servers", self._cluster.bootstrap).load()

    def stream(self, **options: str) -> DataFrame:
        reader = self._spark.readStream.format("pykafka").options(**self.options, **options)
        return reader.option("startingOffsets", "earliest").load()


@pytest.fixture
def orders(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    registry: FakeRegistry,
    topic: Callable[..., str],
) -> Orders:
    return Orders(spark, kafka_cluster, registry, topic())


@pytest.mark.parametrize("engine", ["wire", pytest.param("librdkafka", marks=pytest.mark.soak)])
def test_confluent_avro(orders: Orders, engine: str) -> None:
    """
    Records of Confluent's serializer with two schemas, their ids in a prefix or a header, have the
    columns of the latest schema, or some of them.
    """
    orders.send(
        orders.avro(OLD, {"id": 1, "who": "a"}),
        orders.avro(NEW, {"id": 2**40, "who": None, "tags": ["x"]}),
        orders.avro(OLD, {"id": 3, "who": None}, in_header=True),
        Record(None),
    )
    options = {"valueFormat": "avro", "engine": engine}

    frame = orders.batch(**options, flatten="true")
    rows = sorted(frame.collect(), key=lambda row: row._offset)

    assert frame.schema.simpleString() == (
        "struct<id:bigint,who:string,tags:array<string>,"
        "_topic:string,_partition:int,_offset:bigint,_timestamp:timestamp>"
    )
    assert [(row.id, row.who, row.tags) for row in rows] == [
        *((1, "a", ["none"]), (2**40, None, ["x"]), (3, None, ["none"]), (None, None, None)),
    ]
    narrow_rows = orders.batch("value STRUCT<id: BIGINT>", **options).collect()
    assert [row.value and row.value.id for row in narrow_rows] == [1, 2**40, 3, None]


def test_confluent_json(orders: Orders) -> None:
    """
    Records of Confluent's JSON serializer have the columns of the JSON Schema in the registry.
    """
    orders.send(orders.json({"id": 1, "who": "a"}), orders.json({"id": 2}))

    frame = orders.batch(valueFormat="json")

    assert frame.select("value.*").dtypes == [("id", "bigint"), ("who", "string")]
    assert [tuple(row) for row in frame.select("value.*").collect()] == [(1, "a"), (2, None)]


def test_stream_goes_on_through_a_new_schema(
    orders: Orders, registry: FakeRegistry, checkpoint: str
) -> None:
    """
    A running query decodes records of a schema that was registered after its start; a record of an
    unknown schema is bad.
    """
    orders.send(orders.avro(OLD, {"id": 1, "who": "a"}))
    frame = orders.stream(valueFormat="avro", onBadRecord="rescue")
    rows: list[Any] = []
    writer = frame.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
    query = writer.option("checkpointLocation", checkpoint).start()
    try:
        wait_until(lambda: None if len(rows) == 1 else f"{len(rows)} rows", 60)
        orders.send(
            orders.avro(GROWN, {"id": 2, "who": "b", "tags": ["x"]}),
            Record(framed(4000, b"")),
            orders.avro(OLD, {"id": 3, "who": "c"}),
        )
        wait_until(lambda: None if len(rows) == 4 else f"{len(rows)} rows", 60)
    finally:
        query.stop()

    assert [row.value.id for row in rows] == [1, 2, None, 3]
    assert [row.value.who for row in rows] == ["a", "b", None, "c"]
    assert [row.offset for row in rows if row._error is not None] == [2]
    assert "does not know id 4000" in rows[2]._error
    assert f"GET /subjects/{orders.name}-value/versions/latest" in registry.requests


def test_sql_view(spark: SparkSession, orders: Orders) -> None:
    """
    In a temporary view the columns come from the registry.
    """
    orders.send(orders.avro(NEW, {"id": 7, "who": "z", "tags": ["t"]}))
    options = {**orders.options, "valueFormat": "avro", "flatten": "true"}
    pairs = ", ".join(f"`{name}` '{text}'" for name, text in options.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW registered USING pykafka OPTIONS ({pairs})")

    (row,) = spark.sql("SELECT sum(id) AS id, max(who) FROM registered").collect()

    assert tuple(row) == (7, "z")


def test_registry_that_stops_answering(orders: Orders, registry: FakeRegistry) -> None:
    """
    If the registry fails after the query has started, the task's error says so, with its URL.
    """
    orders.send(orders.avro(OLD, {"id": 1, "who": None}))
    options = {"valueFormat": "avro", "onBadRecord": "null", "valueSchema": json.dumps(OLD)}
    frame = orders.batch(**options, engine="wire")
    registry.always = Fault(503)

    with pytest.raises(Exception, match=r"\[SCHEMA_REGISTRY_UNAVAILABLE\]") as caught:
        frame.collect()

    assert registry.url in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"valueFormat": "avro", "schema.registry.url": "registry:8081"}, "it must be: URLs of"),
        ({"schema.registry.basic.auth.user.info": "a:geheim"}, r"schema\.registry\.url is missing"),
        ({"schema.registry.url": "http://h"}, "no format uses it"),
        ({"valueFormat": "avro", "valueSubject": "x"}, r"schema\.registry\.url is missing"),
        (
            {"valueFormat": "avro", "schema.registry.url": "http://me:geheim@h:1"},
            "has a user and a password",
        ),
    ],
)
def test_impossible_options(
    spark: SparkSession, kafka_cluster: KafkaCluster, options: dict[str, str], message: str
) -> None:
    """
    The error names the option, and shows no secret.
    """
    reader = spark.read.format("pykafka").options(**options).option("subscribe", "t")
    with pytest.raises(Exception, match=message) as caught:
        reader.option("kafka.bootstrap.servers", kafka_cluster.bootstrap).load().collect()
    assert "geheim" not in str(caught.value)


PAGE = Path(__file__).parents[2] / "docs" / "schema-registry.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_examples_of_the_page(
    spark: SparkSession,
    orders: Orders,
    registry: FakeRegistry,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """
    The page's examples run unchanged, except for addresses and the topic.
    """
    orders.send(
        orders.avro(OLD, {"id": 1, "who": "ann"}),
        orders.avro(NEW, {"id": 2, "who": "bob", "tags": ["new"]}),
    )
    registry.add("com.shop.Order", NEW)
    for example in EXAMPLES:
        text = example.replace("broker:9092", orders.options["kafka.bootstrap.servers"])
        text = text.replace("https://registry:8081", registry.url).replace(
            "user:password", "me:secret"
        )
        exec(text.replace('"orders"', f'"{orders.name}"'), {"spark": spark})  # noqa: S102
        assert "bob" in capsys.readouterr().out
    assert len(EXAMPLES) == 3


WRITTEN = """
    id BIGINT, name STRING, price DECIMAL(9,2), tags ARRAY<STRING>,
    sizes MAP<STRING, DOUBLE>, at TIMESTAMP, inner STRUCT<flag: BOOLEAN, raw: BINARY>
"""


@pytest.mark.parametrize(
    ("engine", "guarantee"),
    [
        ("wire", "exactly-once"),
        pytest.param("librdkafka", "at-least-once", marks=pytest.mark.soak),
    ],
)
def test_confluent_reads_what_is_written(
    spark: SparkSession, orders: Orders, engine: str, guarantee: str
) -> None:
    """
    Structs that are written as Avro are equal in Confluent's deserializer and in our reader, and
    tombstones stay tombstones.
    """
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    full = (7, "\u2028é\x00", Decimal("12.50"), ["a", None], {"k": 1.5}, moment, (True, b"\xff"))
    rows = [("a", full), ("b", (8, *[None] * 6)), ("c", None)]
    frame = spark.createDataFrame(rows, f"key STRING, value STRUCT<{WRITTEN}>")
    options = {**orders.options, "topic": orders.name, "keyFormat": "avro", "valueFormat": "avro"}
    del options["subscribe"]

    frame.write.format("pykafka").mode("append").options(
        **options, engine=engine, deliveryGuarantee=guarantee
    ).save()

    typed = orders.batch(valueFormat="avro", keyFormat="avro")
    assert sorted(typed.select("key", "value").collect()) == sorted(frame.collect())
    deserializer = AvroDeserializer(orders.client)
    context = SerializationContext(orders.name, MessageField.VALUE)
    raw = {bytes(row.key)[6:]: row.value for row in orders.raw(orders.name).collect()}
    values = {key: value and deserializer(bytes(value), context) for key, value in raw.items()}
    assert values == {
        b"a": {
            "id": 7,
            "name": full[1],
            "price": full[2],
            "tags": full[3],
            "sizes": full[4],
            "at": moment,
            "inner": {"flag": True, "raw": b"\xff"},
        },
        b"b": {"id": 8} | dict.fromkeys(("name", "price", "tags", "sizes", "at", "inner")),
        b"c": None,
    }


# test_schema_id_headers.py has Confluent's deserializers and ids in headers, without Spark.
@pytest.mark.soak
def test_stream_of_json_with_a_schema(
    spark: SparkSession, orders: Orders, topic: Callable[..., str], checkpoint: str
) -> None:
    """
    A stream that writes JSON, with the GUID of its schema in a header, is read by Confluent's
    deserializer, which checks the schema, and by our reader.
    """
    orders.send(Record(b"1"), Record(b"2"))
    raw = (
        spark.readStream.format("pykafka")
        .option("kafka.bootstrap.servers", orders.options["kafka.bootstrap.servers"])
        .options(subscribe=orders.name, startingOffsets="earliest")
        .load()
    )
    value = F.struct(raw.value.cast("string").cast("int").alias("id"), F.lit(None).alias("x"))
    target = topic()
    options = {**orders.options, "topic": target, "valueFormat": "json"}
    options["schemaIdLocation"] = "header"
    del options["subscribe"]

    query = (
        raw.select(value.cast("struct<id:int,x:string>").alias("value"))
        .writeStream.format("pykafka")
        .options(**options, checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)

    records = orders.raw(target).collect()
    deserializer = JSONDeserializer(None, schema_registry_client=orders.client)
    values = []
    for row in records:
        headers = [(header.key, bytes(header.value)) for header in row.headers]
        context = SerializationContext(target, MessageField.VALUE, headers)
        values.append(deserializer(bytes(row.value), context))
    assert sorted(value["id"] for value in values) == [1, 2]
    assert all(set(value) == {"id"} for value in values)
    typed = orders.batch(valueFormat="json", subscribe=target)
    assert sorted(typed.select("value.id").collect()) == [(1,), (2,)]


def test_exactly_once_stream_of_avro(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    registry: FakeRegistry,
    topic: Callable[..., str],
    checkpoint: str,
) -> None:
    """
    If a row of a batch cannot be encoded, nothing of the batch is visible; when the query runs
    again with the row corrected, each row is visible once.
    """
    orders = Orders(spark, kafka_cluster, registry, topic(3))
    orders.send(*(Record(str(n).encode(), partition=n % 3) for n in range(4)))
    target = topic()
    options = {**orders.options, "topic": target, "valueFormat": "avro"}
    options |= {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": target}
    options["valueSchema"] = json.dumps(OLD)
    del options["subscribe"]
    servers = orders.options["kafka.bootstrap.servers"]

    def run(number: str) -> None:
        reader = spark.readStream.format("pykafka").option("kafka.bootstrap.servers", servers)
        # With a minimum number of tasks, each partition is a task, and only one of them fails.
        reader = reader.options(subscribe=orders.name, minPartitions=1)
        raw = reader.option("startingOffsets", "earliest").load()
        value = f"named_struct('id', {number}, 'who', 'w') AS value"
        rows = raw.selectExpr("CAST(CAST(value AS STRING) AS INT) AS n").selectExpr(value)
        writer = rows.writeStream.format("pykafka").options(**options)
        writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        assert writer.start().awaitTermination(120)

    def seen() -> list[int]:
        committed = {"kafka.isolation.level": "read_committed", "subscribe": target}
        frame = orders.batch(valueFormat="avro", **committed)
        return sorted(row.value.id for row in frame.collect())

    run("n")
    orders.send(*(Record(str(n).encode(), partition=n % 3) for n in range(4, 8)))
    with pytest.raises(Exception, match=r"KAFKA_UNENCODABLE_RECORD.*value\.id is null"):
        run("IF(n = 6, NULL, n)")
    assert seen() == [0, 1, 2, 3]
    run("n")

    assert seen() == [*range(8)]
    # The registry has one schema, although each micro-batch registered it again.
    assert len(registry.subjects[f"{target}-value"]) == 1
