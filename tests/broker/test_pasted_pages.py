"""
Pages that a newcomer pastes block by block: the README, the tutorial, the recipes, and the blocks
of the pages on single features.
"""

from __future__ import annotations

import io
import json
import re
import time
from contextlib import redirect_stderr, redirect_stdout
from itertools import chain, filterfalse
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.query import StreamingQuery, StreamingQueryManager
from tests.support.page_blocks import Block, PageReader, blocks_of, delete_topics

from pyspark_pykafka.cli import main
from pyspark_pykafka.testing import Record
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener

    from pyspark_pykafka.testing import KafkaCluster
    from pyspark_pykafka.testing.plugin import TopicFactory

TOPICS = {
    *("flights", "delays", "flight-delays-ledger", "copies", "copies-ledger"),
    *("airlines", "departures", "durations", "flights.dead", "flights.corrected"),
    *("weather", "accounts", "archive", "nightly-copies-ledger"),
}
DATABASE = "jdbc:derby:memory:flights;create=true"
#: Blocks that need jars which Spark does not ship.
LAKEHOUSES = ("delta", "iceberg")
FLIGHTS = [
    {"id": 1, "carrier": "AA", "delay": 11, "landed": "2026-11-24T08:00:00Z"},
    {"id": 2, "carrier": "UA", "delay": -4, "landed": "2026-11-25T09:00:00Z"},
]


@pytest.fixture
def reader(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Iterator[PageReader]:
    """
    Return a reader in an empty folder, on a broker without the topics of the pages.
    """
    monkeypatch.chdir(tmp_path)
    # The pages set it; it is removed after the test.
    monkeypatch.setenv("PYKAFKA_KAFKA_BOOTSTRAP_SERVERS", kafka_cluster.bootstrap)
    delete_topics(kafka_cluster, TOPICS)
    yield PageReader(kafka_cluster.bootstrap, tmp_path, {"spark": spark})
    for query in spark.streams.active:
        query.stop()
    delete_topics(kafka_cluster, TOPICS)


def committed(kafka_cluster: KafkaCluster, topic: str) -> list[Any]:
    """
    Return the committed values of a topic, decoded from JSON.
    """
    records = kafka_cluster.consume(topic, {"isolation.level": "read_committed"})
    return [json.loads(record.value or b"null") for record in records]


def unread(group: str) -> str | None:
    """
    Return the lag of a query as printed by `pykafka lag`, or None if it prints none.
    """
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        code = main(["lag", "--group", group])
    return None if code == 0 and "Total lag: 0\n" in printed.getvalue() else printed.getvalue()


def read_through(reader: PageReader, spark: SparkSession, page: str, group: str) -> list[str]:
    """
    Paste all blocks, and return their outputs; the lag of a running query is checked once its last
    micro-batch is recorded, which happens in the background.
    """
    outputs = []
    for block in blocks_of(page):
        if spark.streams.active and block.language == "sh":
            wait_until(lambda: unread(group), 60)
        outputs.append(reader.paste(block))
    return outputs


def totals(outputs: list[str]) -> list[str]:
    return list(chain(*(re.findall(r"^Total lag: (\d+)$", text, re.MULTILINE) for text in outputs)))


def test_the_tutorial(reader: PageReader, spark: SparkSession, kafka_cluster: KafkaCluster) -> None:
    """
    Each block runs as it stands: the lag is 2 while the query is stopped, and 0 when it has
    continued from its checkpoint; the rows of both micro-batches are in the result once.
    """
    outputs = read_through(reader, spark, "docs/tutorial.md", "flight-delays")

    (table,) = (text for text in outputs if "|carrier|" in text)
    assert table.count("|     AA|") == 2
    assert totals(outputs) == ["0", "2", "0"]
    results = committed(kafka_cluster, "delays")
    assert sorted((row["carrier"], row["flights"], row["mean_delay"]) for row in results) == [
        ("AA", 2, 22.0),
        ("AA", 3, 15.0),
        ("DL", 1, 7.0),
        ("UA", 1, -4.0),
        ("UA", 1, -4.0),
    ]


def test_the_readme(reader: PageReader, spark: SparkSession, kafka_cluster: KafkaCluster) -> None:
    """
    From nothing to an exactly-once stream with visible lag: each block runs as it stands.
    """
    outputs = read_through(reader, spark, "README.md", "flights-to-copies")

    assert totals(outputs) == ["0"]
    records = kafka_cluster.consume("copies", {"isolation.level": "read_committed"})
    assert sorted(record.value or b"" for record in records) == [
        *(b"EWR to IAH", b"JFK to MIA", b"LGA to IAH"),
    ]


@pytest.fixture
def prepared(reader: PageReader, kafka_cluster: KafkaCluster) -> PageReader:
    """
    Return the reader of the recipes, with filled topics.
    """
    rows: dict[str, list[dict[str, Any]]] = {
        "flights": FLIGHTS,
        "departures": [{"id": 1, "started": "2026-11-24T06:00:00Z"}],
        "airlines": [{"carrier": "AA", "name": name} for name in ("Old", "American")],
        "durations": [],
        "flights.dead": [],
        "flights.corrected": [],
    }
    for topic, values in rows.items():
        kafka_cluster.create_topic(topic)
        kafka_cluster.produce(
            topic,
            [
                Record(json.dumps(value).encode(), key=value.get("carrier", "").encode())
                for value in values
            ],
        )
    return reader


def jvm_of(spark: SparkSession) -> Any:
    """
    Return Spark's JVM, in which the database Derby writes no log.
    """
    jvm = spark._jvm
    assert jvm is not None
    jvm.java.lang.System.setProperty("derby.stream.error.file", "/dev/null")
    return jvm


def needs_jars(block: Block) -> bool:
    return any(name in block.text for name in LAKEHOUSES)


# The recipes are made of parts that are tested one by one.
@pytest.mark.soak
def test_the_recipes(
    prepared: PageReader, spark: SparkSession, kafka_cluster: KafkaCluster
) -> None:
    """
    Each block runs as it stands. Each record is written once, even to a database when Spark repeats
    a micro-batch; a record that cannot be decoded is replayed.
    """
    statement = jvm_of(spark).java.sql.DriverManager.getConnection(DATABASE).createStatement()
    for block in filterfalse(needs_jars, blocks_of("docs/recipes.md")):
        if block.language == "sql":
            statement.execute(block.text)
            continue
        if "onBadRecord" in block.text:
            kafka_cluster.produce("flights", [Record(b'{"id": "bad"}')])
        prepared.paste(
            Block(block.language, block.text.replace("jdbc:postgresql://db/flights", DATABASE))
        )
    names, folder = prepared.names, prepared.folder

    assert spark.read.parquet(f"{folder}/lake/flights").count() == len(FLIGHTS)
    stored_flights = spark.read.parquet(f"{folder}/lake/flights").drop("day")
    names["to_database"](stored_flights, 0)
    assert spark.read.format("jdbc").options(**names["database"]).load().count() == len(FLIGHTS)
    assert names["named"].columns[-1] == "name"
    assert names["airlines"].collect()[0].name == "American"
    assert committed(kafka_cluster, "durations") == [{"id": 1, "s": 7200}]
    assert spark.read.parquet(f"{folder}/lake/raw_flights").count() == len(FLIGHTS)
    assert spark.read.parquet(f"{folder}/lake/good_flights").count() == len(FLIGHTS)
    assert committed(kafka_cluster, "flights.corrected") == [{"id": "bad"}]


@pytest.fixture
def flights(
    reader: PageReader, spark: SparkSession, kafka_cluster: KafkaCluster
) -> Iterator[PageReader]:
    """
    Return a reader who has read the topic `flights`; views and listeners are removed afterwards.
    """
    kafka_cluster.create_topic("flights")
    kafka_cluster.produce("flights", [Record(b"short"), Record(b"a long one", key=b"k")])
    add, added = StreamingQueryManager.addListener, []

    def record(manager: StreamingQueryManager, listener: StreamingQueryListener) -> None:
        added.append(listener)
        add(manager, listener)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(StreamingQueryManager, "addListener", record)
        yield reader
    for listener in added:
        spark.streams.removeListener(listener)
    spark.catalog.dropTempView("flights")


def stream_of_flights(reader: PageReader, spark: SparkSession) -> DataFrame:
    options = {"kafka.bootstrap.servers": reader.bootstrap, "subscribe": "flights"}
    stream = spark.readStream.format("pykafka").options(**options)
    return stream.option("startingOffsets", "earliest").load()


def paste_all(reader: PageReader, page: str) -> None:
    for block in blocks_of(page):
        reader.paste(block)


def test_pages_that_read(
    flights: PageReader, spark: SparkSession, kafka_cluster: KafkaCluster
) -> None:
    """
    The blocks of the start page and of those on positions and progress return the topic's records.
    """
    kafka_cluster.create_topic("weather")
    names = flights.names

    for page in ("docs/index.md", "docs/positions.md", "docs/progress.md"):
        paste_all(flights, page)

    frames = (names["df"], names["recent"], names["fixed"], spark.table("flights"))
    assert [frame.count() for frame in frames] == [2] * 4
    assert names["mixed"].isStreaming
    assert names["stream"].isStreaming


def test_the_page_on_compacted_topics(flights: PageReader, kafka_cluster: KafkaCluster) -> None:
    """
    The block reads the latest value of each key.
    """
    kafka_cluster.create_topic("accounts")
    values = [json.dumps({"account": 1, "balance": balance}).encode() for balance in (5, 7)]
    kafka_cluster.produce("accounts", [Record(value, key=b"1") for value in values])

    paste_all(flights, "docs/compacted-topics.md")

    assert [row.value.balance for row in flights.names["accounts"].collect()] == [7]


def test_the_page_on_writing(
    flights: PageReader, spark: SparkSession, kafka_cluster: KafkaCluster
) -> None:
    """
    Each block writes its rows once: a batch, two threads, and exactly-once as a batch and a stream.
    """
    for name in ("copies", "archive"):
        kafka_cluster.create_topic(name)
    names = flights.names
    options = {"kafka.bootstrap.servers": flights.bootstrap, "subscribe": "flights"}
    names["flights"] = spark.read.format("pykafka").options(**options).load()
    names["rows"] = spark.range(3).selectExpr("CAST(id AS STRING) AS value")

    for block in blocks_of("docs/writing.md"):
        if "writeStream" in block.text:
            names["rows"] = stream_of_flights(flights, spark).select("key", "value")
        flights.paste(block)
    for thread in names["threads"]:
        thread.join()
    for query in spark.streams.active:
        query.processAllAvailable()

    committed_only = {"isolation.level": "read_committed"}
    assert len(kafka_cluster.consume("copies", committed_only)) == 2 + 100 + 3 + 2
    assert len(kafka_cluster.consume("archive", committed_only)) == 100


def test_the_page_on_failing_batches(flights: PageReader, spark: SparkSession) -> None:
    """
    The supervised query ends, and the stream that isolates poison records fills a database.
    """
    jvm_of(spark)
    url = "jdbc:derby:memory:failing;create=true"
    stream = stream_of_flights(flights, spark)
    writer = stream.writeStream.format("noop").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", f"{flights.folder}/supervised")
    flights.names |= {"stream": stream, "writer": writer, "url": url}

    try:
        paste_all(flights, "docs/failing.md")
    finally:
        # The page silences Spark.
        spark.sparkContext.setLogLevel("ERROR")
    flights.names["query"].processAllAvailable()

    assert spark.read.jdbc(url, "flights").count() == 2


def test_the_page_on_audits(flights: PageReader, kafka_cluster: KafkaCluster) -> None:
    """
    The audited stream filters the topic's new records; Parquet stands in for Delta.
    """
    for block in blocks_of("docs/audit.md"):
        flights.paste(Block(block.language, block.text.replace('"delta"', '"parquet"')))
    query, spark = flights.names["query"], flights.names["spark"]
    query.processAllAvailable()
    kafka_cluster.produce("flights", [Record(b"short"), Record(b"a long one")])
    query.processAllAvailable()

    rows = spark.read.parquet(f"{flights.folder}/data/flights").collect()
    assert [row.value for row in rows] == ["A LONG ONE"]


def test_the_pages_on_the_api_and_on_figures(
    flights: PageReader, spark: SparkSession, kafka_cluster: KafkaCluster
) -> None:
    """
    Each block of the API page runs; its stream processes all records, and nothing is a dead letter.
    """
    kafka_cluster.create_topic("flights.dead")
    stream = stream_of_flights(flights, spark)
    writer = stream.writeStream.format("noop").trigger(availableNow=True)
    processed: list[Any] = []
    flights.names |= {
        "stream": stream,
        "writer": writer.option("checkpointLocation", f"{flights.folder}/supervised"),
        "process": lambda frame, _: processed.extend(frame.collect()),
        "finding": SimpleNamespace(difference=1),
        "start": 0,
        "end": 2,
    }

    for block in [*blocks_of("docs/api.md"), *blocks_of("docs/performance.md")]:
        # Another process may use the port.
        text = block.text.replace("port=9400", "port=0")
        # The broker has the topics of all tests.
        text = text.replace('prefix="kafka_"', 'prefix="kafka_", pattern="^flights"')
        flights.paste(Block(block.language, text))
    for query in spark.streams.active:
        query.processAllAvailable()
    flights.names["metrics"].close()

    assert sorted(bytes(row.value) for row in processed) == [b"a long one", b"short"]
    assert kafka_cluster.consume("flights.dead") == []


def test_the_page_on_commands(reader: PageReader, kafka_cluster: KafkaCluster) -> None:
    """
    The commands for topics and records run in their order: records that are written are shown, and
    in the end the topic is deleted.
    """
    (reader.folder / "flights.txt").write_text('UA1545:{"status": "late"}\n')
    (block,) = blocks_of("docs/commands.md")

    output = reader.paste(block)

    assert output.count('"key": "LH400"') == output.count('"key": "UA1545"') == 2
    assert "status STRING" in output
    assert "flights" not in kafka_cluster.admin().list_topics(timeout=30).topics


def test_the_page_on_moving_from_the_jvm_connector(
    flights: PageReader, spark: SparkSession, kafka_cluster: KafkaCluster
) -> None:
    """
    The filtered read returns the last hour's records, and the command converts a checkpoint to the
    JVM connector's format.
    """
    old = Record(b"old", timestamp=int((time.time() - 7200) * 1000))
    kafka_cluster.produce("flights", [old])
    checkpoint = flights.folder / "checkpoint"
    writer = stream_of_flights(flights, spark).writeStream.format("noop")
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    for query in spark.streams.active:
        query.awaitTermination(60)
    blocks = blocks_of("docs/migrating.md")
    assert [block.language for block in blocks] == ["sh", "python"]

    try:
        for block in blocks:
            text = block.text.replace("/path/of/the/checkpoint", str(checkpoint))
            text = text.replace('parquet("', f'parquet("{flights.folder}/')
            flights.paste(Block(block.language, text))
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")

    offsets = (checkpoint / "offsets" / "0").read_text().splitlines()[-1]
    assert json.loads(offsets) == {"flights": {"0": 3}}
    rows = spark.read.parquet(f"{flights.folder}/flights").collect()
    assert sorted(bytes(row.value) for row in rows) == [b"a long one", b"short"]


@pytest.mark.soak
def test_the_page_on_tests(
    reader: PageReader, spark: SparkSession, kafka_cluster: KafkaCluster, topic: TopicFactory
) -> None:
    """
    The blocks start clusters of one and three brokers, and a stream reads a record that is written
    while a broker is down; the test on the page passes with a job that drops tombstones.
    """

    def read(bootstrap: str, name: str, source: Any) -> Any:
        return source.format("pykafka").options(
            **{"kafka.bootstrap.servers": bootstrap, "subscribe": name}
        )

    def my_job(spark: SparkSession, bootstrap: str, source: str, target: str) -> None:
        rows = read(bootstrap, source, spark.read).load().filter("value IS NOT NULL")
        options = {"kafka.bootstrap.servers": bootstrap, "topic": target}
        rows.select("value").write.format("pykafka").options(**options).mode("append").save()

    values: list[bytes] = []

    def start_my_stream(bootstrap: str, name: str) -> StreamingQuery:
        stream = read(bootstrap, name, spark.readStream).option("startingOffsets", "earliest")
        writer = stream.load().writeStream.option("checkpointLocation", f"{reader.folder}/c")
        query: StreamingQuery = writer.foreachBatch(
            lambda frame, _: values.extend(bytes(row.value) for row in frame.collect())
        ).start()
        return query

    reader.names |= {"my_job": my_job, "start_my_stream": start_my_stream}

    for block in blocks_of("docs/testing.md"):
        reader.paste(block)
        for query in spark.streams.active:
            query.stop()
    reader.names["test_my_job_skips_tombstones"](spark, kafka_cluster, topic)

    assert values == [b"while one broker was down"]
