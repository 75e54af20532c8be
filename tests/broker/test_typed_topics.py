"""
Typed topics on a real broker: the rows that Spark receives from both engines, in batches and
streams.
"""

from __future__ import annotations

import io
import json
import re
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from confluent_kafka import Producer
from google.protobuf import descriptor_pb2, struct_pb2
from pyspark.sql import functions as F  # noqa: N812 (how Spark's users know it)
from tests.support import record_batches
from tests.support.served_kafka import RawKafka

from pyspark_pykafka.cli import main
from pyspark_pykafka.testing import KafkaCluster, Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, Row, SparkSession

BOTH_ENGINES = ("wire", "librdkafka")
# The same code decodes the records of both engines, as tests with BOTH_ENGINES show.
ENGINES = ["wire", pytest.param("librdkafka", marks=pytest.mark.soak)]
SCHEMA = "id BIGINT, customer STRUCT<name: STRING, tags: ARRAY<STRING>>, paid DECIMAL(9,2)"
ORDERS = [
    {"id": i, "note": "x" * 50, "customer": {"name": f"c{i}", "tags": ["a", "b"]}, "paid": i / 4}
    for i in range(20)
]


class Loader:
    """
    Loads a topic with options of typed topics.
    """

    def __init__(self, spark: SparkSession, bootstrap: str, name: str) -> None:
        self.spark = spark
        self.options = {"kafka.bootstrap.servers": bootstrap, "subscribe": name}

    def batch(self, schema: str | None = None, **options: Any) -> DataFrame:
        reader = self.spark.read.format("pykafka").options(**self.options, **options)
        return (reader.schema(schema) if schema else reader).load()

    def stream(self, checkpoint: str, schema: str | None = None, **options: Any) -> list[Row]:
        """
        Return the rows of an availableNow run.
        """
        reader = self.spark.readStream.format("pykafka").options(**self.options, **options)
        reader = reader.option("startingOffsets", "earliest")
        rows: list[Row] = []
        frame = (reader.schema(schema) if schema else reader).load()
        writer = frame.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        assert query.awaitTermination(60)
        return rows


@pytest.fixture
def loader(
    spark: SparkSession, kafka_cluster: KafkaCluster, topic: Callable[..., str]
) -> Callable[..., Loader]:
    """
    Return a function that makes a topic of values, and a loader of it.
    """

    def make(values: list[Any], keys: list[bytes | None] | None = None) -> Loader:
        name = topic()
        encoded = [json.dumps(v).encode() if isinstance(v, dict) else v for v in values]
        pairs = zip(encoded, keys or [None] * len(values), strict=True)
        kafka_cluster.produce(name, [Record(value, key) for value, key in pairs])
        return Loader(spark, kafka_cluster.bootstrap, name)

    return make


@pytest.mark.smoke
@pytest.mark.parametrize("engine", BOTH_ENGINES)
def test_json_with_a_schema(loader: Callable[..., Loader], engine: str) -> None:
    """
    The user's schema gives the type of value; only its fields are decoded, at any depth.
    """
    schema = "value STRUCT<id: BIGINT, customer: STRUCT<name: STRING>>, key STRING, offset BIGINT"
    orders = loader([*ORDERS, None, b"", {"other": 1}], [b"k"] * 23)

    frame = orders.batch(schema, valueFormat="json", keyFormat="text", engine=engine)

    assert frame.schema.simpleString() == (
        "struct<value:struct<id:bigint,customer:struct<name:string>>,key:string,offset:bigint>"
    )
    rows = sorted(frame.collect(), key=lambda row: row.offset)
    assert [row.asDict(recursive=True) for row in rows[18:]] == [
        {"value": {"id": 18, "customer": {"name": "c18"}}, "key": "k", "offset": 18},
        {"value": {"id": 19, "customer": {"name": "c19"}}, "key": "k", "offset": 19},
        {"value": None, "key": "k", "offset": 20},
        {"value": None, "key": "k", "offset": 21},
        {"value": {"id": None, "customer": None}, "key": "k", "offset": 22},
    ]
    assert frame.count() == 23


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("as_json", [False, True], ids=["ddl", "json"])
def test_schema_option_equals_from_json(
    spark: SparkSession, loader: Callable[..., Loader], engine: str, *, as_json: bool
) -> None:
    """
    With valueSchema, as DDL or as JSON text, the columns equal those of a raw read with from_json.
    """
    orders = loader(ORDERS)
    text = spark.createDataFrame([], SCHEMA).schema.json() if as_json else SCHEMA
    raw = orders.batch(engine=engine)
    expected = raw.withColumn("value", F.from_json(F.col("value").cast("string"), SCHEMA))

    frame = orders.batch(valueFormat="json", valueSchema=text, engine=engine)

    assert frame.schema == expected.schema
    assert sorted(frame.collect(), key=str) == sorted(expected.collect(), key=str)


def test_flat_columns(loader: Callable[..., Loader]) -> None:
    """
    With flatten the fields are columns; filters on record columns narrow the read, those on fields
    of the same names do not.
    """
    orders = loader([{"id": i, "offset": 100 + i} for i in range(10)])
    options = {"valueFormat": "json", "flatten": "true"}

    frame = orders.batch(**options, valueSchema="id BIGINT, offset BIGINT")

    assert frame.columns == ["id", "offset", "_topic", "_partition", "_offset", "_timestamp"]
    assert [row.id for row in frame.where("_offset >= 8").collect()] == [8, 9]
    assert [row.id for row in frame.where("offset >= 108").collect()] == [8, 9]
    assert frame.where("offset < 5").count() == 0
    selected = orders.batch(
        "_key STRING, offset BIGINT, _headers " + HEADERS,
        **options,
        includeHeaders="true",
        keyFormat="text",
    )
    assert selected.where("_headers IS NULL").count() == 10
    assert orders.batch("_offset BIGINT", **options).count() == 10


def test_unknown_fields(loader: Callable[..., Loader], checkpoint: str) -> None:
    """
    Fields that the schema does not name are in the column _rescued, in a batch and in a stream.
    """
    orders = loader([{"id": 1}, {"id": 2, "new": [1]}, {"new": 3}])
    options = {"valueFormat": "json", "onUnknownField": "rescue"}
    rescued = [(1, None), (2, '{"new": [1]}'), (None, '{"new": 3}')]

    flat = orders.batch(**options, valueSchema="id BIGINT", flatten="true").orderBy("_offset")
    rows = orders.stream(checkpoint, "value STRUCT<id: BIGINT>, _rescued STRING", **options)

    assert [(row.id, row._rescued) for row in flat.collect()] == rescued
    assert [(row.value.id, row._rescued) for row in rows] == rescued


HEADERS = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
MIXED = [{"id": 1}, {"id": "two"}, b"{", {"id": 4}, b'{"id":5}']


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("streams", [False, True], ids=["batch", "stream"])
def test_rescued_records(
    loader: Callable[..., Loader], checkpoint: str, engine: str, *, streams: bool
) -> None:
    """
    With onBadRecord=rescue the rows of bad records have their bytes and the reason.
    """
    options = {
        "valueFormat": "json",
        "flatten": "true",
        "valueSchema": "id BIGINT",
        "onBadRecord": "rescue",
        "engine": engine,
    }
    orders = loader(MIXED)

    rows = orders.stream(checkpoint, **options) if streams else orders.batch(**options).collect()

    rows.sort(key=lambda row: row._offset)
    assert [row.id for row in rows] == [1, None, None, 4, 5]
    assert [row._raw for row in rows] == [None, b'{"id": "two"}', b"{", None, None]
    assert [row._error for row in rows] == [
        None,
        "value.id must be BIGINT, but is a string, at byte 7",
        "value is not valid JSON: the text ends too early, at byte 1",
        None,
        None,
    ]


@dataclass
class DeadLetters:
    """
    A dead-letter topic.
    """

    cluster: KafkaCluster
    topic: str

    def offsets(self) -> list[str]:
        """
        Return the records' offsets in their source topic, from their headers.
        """
        letters = self.cluster.consume(self.topic)
        name = "pykafka.deadletter.offset"
        return [(dict(letter.headers or [])[name] or b"").decode() for letter in letters]

    def command(self, action: str, capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
        """
        Run `pykafka deadletter`, and return its JSON.
        """
        topic_arguments = ["--bootstrap-server", self.cluster.bootstrap, "--topic", self.topic]
        assert main(["deadletter", action, *topic_arguments, "--json", *arguments]) == 0
        return json.loads(capsys.readouterr().out)


@pytest.fixture
def dead_letters(kafka_cluster: KafkaCluster, topic: Callable[..., str]) -> DeadLetters:
    """
    Return a new dead-letter topic.
    """
    return DeadLetters(kafka_cluster, topic())


@pytest.mark.parametrize("engine", BOTH_ENGINES)
def test_dead_letters(
    loader: Callable[..., Loader],
    dead_letters: DeadLetters,
    checkpoint: str,
    engine: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """
    Bad records of a stream and of a batch go to the dead-letter topic unchanged; the command lists
    them and sends them back.
    """
    options = {
        "valueFormat": "json",
        "flatten": "true",
        "valueSchema": "id BIGINT",
        "onBadRecord": "deadletter",
        "deadLetterTopic": dead_letters.topic,
        "engine": engine,
    }
    orders = loader(MIXED, [b"k", None, b"", b"k", b"k"])

    rows = orders.stream(checkpoint, **options)
    batch = orders.batch(**options).collect()

    assert sorted(row.id for row in rows) == sorted(row.id for row in batch) == [1, 4, 5]
    assert dead_letters.offsets() == ["1", "2"] * 2
    sources = dead_letters.cluster.consume(orders.options["subscribe"])
    letters = dead_letters.cluster.consume(dead_letters.topic)
    assert [(letter.key, letter.value, letter.timestamp) for letter in letters] == [
        (source.key, source.value, source.timestamp) for source in sources[1:3] * 2
    ]
    listed = dead_letters.command("list", capsys)
    assert [letter["why"]["batch"] for letter in listed] == ["0", "0", "-1", "-1"]
    assert "value.id must be BIGINT, but is a string" in listed[0]["why"]["error.message"]
    replayed = dead_letters.command("replay", capsys, "--execute")
    assert replayed == {"recordsByTopic": {orders.options["subscribe"]: 4}, "executed": True}
    replayed = dead_letters.cluster.consume(orders.options["subscribe"])[len(MIXED) :]
    assert [record.value for record in replayed] == [b'{"id": "two"}', b"{"] * 2


@pytest.mark.parametrize("engine", ENGINES)
def test_dead_letters_without_a_valid_timestamp(
    loader: Callable[..., Loader],
    dead_letters: DeadLetters,
    engine: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """
    Bad records with the timestamps 0 and -1, which some clients write, become dead letters, and can
    be sent back.
    """
    orders = loader([b'{"id":1}'])
    name = orders.options["subscribe"]
    with closing(RawKafka(dead_letters.cluster.bootstrap, name)) as requests:
        for timestamp in (0, -1):
            record = record_batches.Record(0, timestamp=timestamp, value=b"{")
            data = record_batches.batch_of(record).encode()
            assert requests.produce(data=data).error_code == 0
    options = {"valueFormat": "json", "valueSchema": "id BIGINT", "onBadRecord": "deadletter"}

    frame = orders.batch(**options, deadLetterTopic=dead_letters.topic, engine=engine)

    assert [row.value.id for row in frame.collect()] == [1]
    assert dead_letters.offsets() == ["1", "2"]
    letters = dead_letters.cluster.consume(dead_letters.topic)
    assert all((letter.timestamp or 0) > 1_700_000_000_000 for letter in letters)
    replayed = dead_letters.command("replay", capsys, "--execute")
    assert replayed == {"recordsByTopic": {name: 2}, "executed": True}


def test_dead_letters_and_aborted_records(
    loader: Callable[..., Loader], dead_letters: DeadLetters
) -> None:
    """
    Bad records of an aborted transaction are neither rows nor dead letters.
    """
    orders = loader([b'{"id":1}'])
    name = orders.options["subscribe"]
    producer = Producer(
        {"bootstrap.servers": dead_letters.cluster.bootstrap, "transactional.id": f"{name}-aborts"}
    )
    producer.init_transactions()
    for commits in (False, True):
        producer.begin_transaction()
        producer.produce(name, b"{")
        producer.flush()
        producer.commit_transaction() if commits else producer.abort_transaction()
    options = {"valueFormat": "json", "valueSchema": "id BIGINT", "onBadRecord": "deadletter"}

    frame = orders.batch(
        **options,
        **{"kafka.isolation.level": "read_committed"},
        deadLetterTopic=dead_letters.topic,
    )

    assert [row.value.id for row in frame.collect()] == [1]
    # The aborted record and its marker have the offsets 1 and 2.
    assert dead_letters.offsets() == ["3"]


def test_missing_dead_letter_topic(loader: Callable[..., Loader]) -> None:
    """
    A missing dead-letter topic fails the query, even if there are no bad records.
    """
    frame = loader([b"{}"]).batch(
        valueFormat="json",
        valueSchema="id BIGINT",
        onBadRecord="deadletter",
        deadLetterTopic="no-such-topic",
        **{"kafka.max.block.ms": "500"},
    )

    with pytest.raises(Exception, match="topic 'no-such-topic' was not found"):
        frame.collect()


# test_mistakes.py has an error of a stream's task.
@pytest.mark.parametrize(
    "streams",
    [pytest.param(False, id="batch"), pytest.param(True, id="stream", marks=pytest.mark.soak)],
)
def test_bad_record_fails_the_query(
    loader: Callable[..., Loader], checkpoint: str, *, streams: bool
) -> None:
    """
    By default the query fails, and the error names topic, partition, offset and field.
    """
    options = {"valueFormat": "json", "valueSchema": "id BIGINT"}
    orders = loader(MIXED)
    name = orders.options["subscribe"]

    with pytest.raises(Exception, match="KAFKA_UNDECODABLE_RECORD") as caught:
        orders.stream(checkpoint, **options) if streams else orders.batch(**options).collect()

    expected = f"record of {name}-0 at offset 1: value.id must be BIGINT, but is a string"
    assert expected in str(caught.value)
    assert "two" not in str(caught.value)


# test_record_decoder.py counts the bad records of a range.
@pytest.mark.soak
def test_bad_records_have_a_limit(loader: Callable[..., Loader]) -> None:
    """
    A range of offsets with more bad records than maxBadRecords fails; up to that limit, their
    values are NULL.
    """
    options = {"valueFormat": "json", "valueSchema": "id BIGINT", "onBadRecord": "null"}
    orders = loader(MIXED)

    assert orders.batch(**options, maxBadRecords=2).where("value.id IS NULL").count() == 2
    with pytest.raises(Exception, match=r"at offset 2: .*maxBadRecords allows, 1"):
        orders.batch(**options, maxBadRecords=1).collect()


@pytest.mark.smoke
@pytest.mark.parametrize("split_options", [{}, {"minPartitions": "1"}], ids=["driver", "tasks"])
def test_stream(
    loader: Callable[..., Loader], checkpoint: str, split_options: dict[str, str]
) -> None:
    """
    A stream has the same rows, whether the driver or tasks read its batches.
    """
    orders = loader(ORDERS)
    options = {"valueFormat": "json", "valueSchema": SCHEMA}

    rows = orders.stream(checkpoint, **options, **split_options)

    expected = orders.batch(**options).collect()
    assert sorted(rows, key=str) == sorted(expected, key=str)


AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "note", "type": "string"},
            {"name": "id", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "who", "type": ["null", "string"]},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
        ],
    }
)


def avro_orders() -> list[bytes]:
    """
    Return records as fastavro writes them.
    """
    values = []
    for number in range(20):
        out = io.BytesIO()
        customer = None if number % 3 else f"c{number}"
        order = {
            "note": "x" * 50,
            "id": number,
            "at": 1000 * number,
            "who": customer,
            "tags": ["a"],
        }
        fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(AVRO)), order)
        values.append(out.getvalue())
    return values


@pytest.mark.parametrize("engine", ENGINES)
def test_avro(loader: Callable[..., Loader], checkpoint: str, engine: str) -> None:
    """
    Avro values have the columns of their schema in a batch, and in a stream only those fields that
    the user's schema names.
    """
    orders = loader([*avro_orders(), None])
    options = {"valueFormat": "avro", "valueSchema": AVRO, "engine": engine}

    frame = orders.batch(**options, flatten="true")
    rows = sorted(frame.collect(), key=lambda row: row._offset)

    assert frame.schema.simpleString() == (
        "struct<note:string,id:bigint,at:timestamp,who:string,tags:array<string>,"
        "_topic:string,_partition:int,_offset:bigint,_timestamp:timestamp>"
    )
    assert [row.id for row in rows] == [*range(20), None]
    assert [row.who for row in rows[:4]] == ["c0", None, None, "c3"]
    assert [row.tags for row in rows[-2:]] == [["a"], None]
    narrow_rows = orders.stream(checkpoint, "value STRUCT<at: TIMESTAMP, id: BIGINT>", **options)
    assert sorted(row.value.id for row in narrow_rows if row.value) == [*range(20)]
    seconds = frame.selectExpr("unix_seconds(at) = id AS same").where("at IS NOT NULL").collect()
    assert seconds == [(True,)] * 20


def test_text_must_be_utf8(loader: Callable[..., Loader]) -> None:
    """
    Text is a STRING; bytes that are not UTF-8 make a bad record.
    """
    orders = loader(["Zoë".encode(), None, b"\xff", b""])
    options = {"valueFormat": "text", "onBadRecord": "rescue"}

    rows = orders.batch(**options).select("value", "_error").collect()

    error = "value is not UTF-8: an invalid byte at byte 0"
    assert [tuple(row) for row in rows] == [("Zoë", None), (None, None), (None, error), ("", None)]


def test_temporary_view(spark: SparkSession, loader: Callable[..., Loader]) -> None:
    """
    In SQL the options of a temporary view type the columns.
    """
    orders = loader(ORDERS)
    options = {**orders.options, "valueFormat": "json", "flatten": "true", "valueSchema": SCHEMA}
    pairs = ", ".join(f"`{name}` '{text}'" for name, text in options.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW typed_orders USING pykafka OPTIONS ({pairs})")

    (row,) = spark.sql("SELECT sum(paid) AS paid, max(customer.name) FROM typed_orders").collect()

    assert (str(row.paid), row[1]) == ("47.50", "c9")


#: Mistakes that test_record_decoder.py and test_typed_schemas.py find without Spark.
IMPOSSIBLE_FORMATS = [
    (None, {"valueFormat": "json", "valueSchema": "{"}, "valueSchema is '{'; it must be"),
    (None, {"valueSchema": "a INT"}, "but valueFormat is 'raw'; set it to json, avro, pro"),
    ("value STRUCT<a: INTERVAL DAY>", {"valueFormat": "json"}, "'value.a' has a type that"),
    ("value MAP<INT, INT>", {"valueFormat": "json"}, "the keys of 'value' must be: STRING"),
    ("value STRUCT<a: INT>", {}, "set valueFormat"),
    ("value BINARY", {"valueFormat": "text"}, "'value' must be: STRING"),
    ("value STRING", {"valueFormat": "text", "onBadRecord": "rescue"}, "add '_error STRING'"),
]


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        (None, {"valueFormat": "json"}, "set valueSchema, such as"),
        ("value STRUCT<a: INT NOT NULL>", {"valueFormat": "json"}, "'value.a' is NOT NULL"),
        *(pytest.param(*mistake, marks=pytest.mark.soak) for mistake in IMPOSSIBLE_FORMATS),
    ],
)
def test_impossible_formats(
    loader: Callable[..., Loader], schema: str | None, options: dict[str, str], message: str
) -> None:
    """
    The error names the option or the column, and says what to do.
    """
    with pytest.raises(Exception, match=message.replace("{", r"\{")):
        loader([b"{}"]).batch(schema, **options).collect()


PAGE = Path(__file__).parents[2] / "docs" / "typed-topics.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_examples_of_the_page(
    spark: SparkSession,
    loader: Callable[..., Loader],
    dead_letters: DeadLetters,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """
    The page's examples run unchanged, except for addresses, topics and files; the examples about
    bad records read a bad record.
    """
    options = loader([*ORDERS, b'{"id":"x"}']).options
    name = options["subscribe"]
    payments = loader([b"\x0e\xd0\x0f\x02\x02x"]).options["subscribe"]
    ends = json.dumps({name: {"0": len(ORDERS)}})
    descriptors = descriptor_pb2.FileDescriptorSet()
    file = descriptors.file.add(name="orders.proto", package="com.shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    for number, field in enumerate(("id", "who", "note", "city"), 1):
        order.field.add(name=field, number=number, label=1, type=9)
    (tmp_path / "orders.desc").write_bytes(descriptors.SerializeToString())
    colour = struct_pb2.Struct()
    colour["color"] = "red"
    attributes = colour.SerializeToString()
    events = loader([b"\x08\x07\x12" + bytes([len(attributes)]) + attributes]).options["subscribe"]
    descriptors.file[0].dependency.append("google/protobuf/struct.proto")
    order.field[0].type = 3
    order.field[1].type, order.field[1].type_name = 11, ".google.protobuf.Struct"
    order.field[1].name = "attributes"
    (tmp_path / "events.desc").write_bytes(descriptors.SerializeToString())
    outputs = []
    for number, example in enumerate(EXAMPLES):
        text = example.replace("broker:9092", options["kafka.bootstrap.servers"])
        text = text.replace('"payments")', f'"{payments}")').replace("/schemas", str(tmp_path))
        text = text.replace("subscribe 'orders'", f"subscribe '{name}', endingOffsets '{ends}'")
        text = text.replace('"events")', f'"{events}")')
        text = text.replace('"orders.dead")', f'"{dead_letters.topic}")')
        limit = "" if "onBadRecord" in example else f".option('endingOffsets', '{ends}')"
        text = text.replace('.option("topic", "orders")', f'.option("topic", "{name}")')
        text = text.replace(
            '.option("subscribe", "orders")', f'.option("subscribe", "{name}"){limit}'
        )
        exec(text, {"spark": spark})  # noqa: S102 (our own page)
        outputs.append(capsys.readouterr().out)
        assert outputs[number].count("\n") > 4

    assert "|  0|  c0|" in outputs[0]
    assert "47.50" in outputs[2]
    assert "|  7|" in outputs[3]
    assert "|-- city: string" in outputs[4]
    assert "|  7|  red|" in outputs[5]
    assert "value.id must be" in outputs[6]
    assert outputs[7].count("NULL") == 0
    assert dead_letters.offsets() == [str(len(ORDERS))]
