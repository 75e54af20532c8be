"""
Topics of Debezium's change events through Spark.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from pyspark_pykafka.testing import KafkaCluster, Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, Row, SparkSession

ENGINES = ["wire", "librdkafka"]
ANN, BOB = {"id": 1, "name": "ann"}, {"id": 1, "name": "bob"}
CHANGES: list[tuple[str, Any, Any]] = [
    ("r", None, ANN),
    ("u", ANN, BOB),
    ("d", BOB, None),
    ("t", None, None),
]


def records() -> list[Record]:
    """
    Return change events with and without schemas, a tombstone, and a value that is not an event.
    """
    values = [
        json.dumps({"before": before, "after": after, "op": operation, "ts_ms": 1000})
        for operation, before, after in CHANGES
    ]
    values[1] = f'{{"schema": {{}}, "payload": {values[1]}}}'
    encoded = [value.encode() for value in values]
    return [Record(v, b"1") for v in (*encoded[:3], None, encoded[3], b'{"status": "BEGIN"}')]


@pytest.fixture
def customers(kafka_cluster: KafkaCluster, topic: Callable[..., str]) -> dict[str, str]:
    """
    Return the options of a topic of change events.
    """
    name = topic()
    kafka_cluster.produce(name, records())
    return {"kafka.bootstrap.servers": kafka_cluster.bootstrap, "subscribe": name}


@pytest.mark.parametrize("engine", ENGINES)
def test_changed_rows(
    spark: SparkSession, customers: dict[str, str], checkpoint: str, engine: str
) -> None:
    """
    Batches and streams return the changed rows without tombstones, and rescue invalid events.
    """
    options = customers | {
        "valueFormat": "debezium-json",
        "valueSchema": "id BIGINT, name STRING",
        "debeziumRows": "true",
        "flatten": "true",
        "onBadRecord": "rescue",
        "engine": engine,
        "startingOffsets": "earliest",
    }
    rows: list[Row] = []
    stream = spark.readStream.format("pykafka").options(**options).load()
    writer = stream.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    assert query.awaitTermination(60)

    for changed_rows in (spark.read.format("pykafka").options(**options).load().collect(), rows):
        assert [(r._offset, r._op, r.id, r.name, r._ts is None) for r in changed_rows] == [
            (0, "r", 1, "ann", False),
            (1, "u", 1, "bob", False),
            (2, "d", 1, "bob", False),
            (4, "t", None, None, False),
            (5, None, None, None, True),
        ]
        assert changed_rows[4]._error.startswith("value is not a change event of Debezium")


def test_changes_are_applied_after_a_shuffle_and_a_restart(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    customers: dict[str, str],
    checkpoint: str,
) -> None:
    """
    The latest change of each key, found by a stateful query, is right after the query continues in
    another run: a shuffle and a restart keep rows, their operations and their order by offset.
    """
    options = customers | {
        "valueFormat": "debezium-json",
        "valueSchema": "id BIGINT, name STRING",
        "debeziumRows": "true",
        "flatten": "true",
        "onBadRecord": "null",
        "startingOffsets": "earliest",
    }
    latest: dict[int, tuple[str, str]] = {}

    def apply(batch: DataFrame, _: int) -> None:
        latest.update({row.id: (row.change.op, row.change.name) for row in batch.collect()})

    def run() -> None:
        stream = spark.readStream.format("pykafka").options(**options).load()
        changes = stream.where("id IS NOT NULL").repartition(2, "id").groupBy("id")
        last = changes.agg(F.max_by(F.struct(F.col("_op").alias("op"), "name"), "_offset"))
        writer = last.toDF("id", "change").writeStream.foreachBatch(apply).outputMode("update")
        writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        assert writer.start().awaitTermination(120)

    run()
    first = dict(latest)
    cat = {"id": 2, "name": "cat"}
    events = [("c", None, cat), ("c", None, ANN), ("d", cat, None)]
    kafka_cluster.produce(
        customers["subscribe"],
        [
            Record(json.dumps({"before": b, "after": a, "op": op, "ts_ms": 2000}).encode(), b"k")
            for op, b, a in events
        ],
    )
    run()

    assert first == {1: ("d", "bob")}
    assert latest == {1: ("c", "ann"), 2: ("d", "cat")}


PAGE = Path(__file__).parents[2] / "docs" / "debezium.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_examples_of_the_page(
    spark: SparkSession, customers: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """
    The page's examples run unchanged, except for the address and the topic.
    """
    name = customers["subscribe"]
    ends = json.dumps({name: {"0": 5}})
    for example in EXAMPLES:
        text = example.replace("broker:9092", customers["kafka.bootstrap.servers"])
        text = text.replace('"customers")', f"\"{name}\").option('endingOffsets', '{ends}')")
        exec(text, {"spark": spark})  # noqa: S102 (our own page)
    output = capsys.readouterr().out
    assert "|  d|   1| bob|" in output
    assert "| ann| bob|" in output
