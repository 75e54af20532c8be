"""
Topics of Debezium's change events through Spark.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_pykafka.testing import KafkaCluster, Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Row, SparkSession

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
    Return change events with and without schemas, a tombstone, and what is no event.
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
    Batches and streams have the changed rows, without tombstones, and rescue what is no event.
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

    for found in (spark.read.format("pykafka").options(**options).load().collect(), rows):
        assert [(r._offset, r._op, r.id, r.name, r._ts is None) for r in found] == [
            (0, "r", 1, "ann", False),
            (1, "u", 1, "bob", False),
            (2, "d", 1, "bob", False),
            (4, "t", None, None, False),
            (5, None, None, None, True),
        ]
        assert found[4]._error.startswith("value is no change event of Debezium")


PAGE = Path(__file__).parents[2] / "docs" / "debezium.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_examples_of_the_page(
    spark: SparkSession, customers: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """
    Every example runs as it is, but for addresses.
    """
    name = customers["subscribe"]
    ends = json.dumps({name: {"0": 5}})
    for example in EXAMPLES:
        text = example.replace("broker:9092", customers["kafka.bootstrap.servers"])
        text = text.replace('"customers")', f"\"{name}\").option('endingOffsets', '{ends}')")
        exec(text, {"spark": spark})  # noqa: S102 (our own page)
    shown = capsys.readouterr().out
    assert "|  d|   1| bob|" in shown
    assert "| ann| bob|" in shown
