"""
Filter push-down: fewer records are fetched, and no matching record is missing.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from pyspark_pykafka.spark.compat import SPARK_VERSION
from pyspark_pykafka.testing import KafkaCluster, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from tests.broker.conftest import Load

HAS_PUSHDOWN = SPARK_VERSION >= (4, 1)
MINUTE = 60_000
T0 = 1_700_000_000_000
RECORDS = 600


@pytest.fixture
def filter_pushdown(spark: SparkSession) -> Iterator[None]:
    """
    Enable filter push-down for Python sources, which is off by default.
    """
    with _setting(spark, "spark.sql.python.filterPushdown.enabled", "true"):
        yield


@contextmanager
def _setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name)


@pytest.fixture
def minutes(topic: Callable[..., str], kafka_cluster: KafkaCluster) -> str:
    """
    Return a topic of two partitions with alternating records, one a minute, over ten hours.
    """
    name = topic(2)
    kafka_cluster.produce(
        name,
        [
            Record(str(n).encode(), partition=n % 2, timestamp=T0 + n * MINUTE)
            for n in range(RECORDS)
        ],
    )
    return name


def run(frame: DataFrame) -> tuple[list[int], int]:
    """
    Return the numbers of a query's result, sorted, and the number of records its scan delivered.
    """
    numbers = frame.selectExpr("CAST(CAST(value AS STRING) AS INT) AS number")
    execution = numbers._jdf.queryExecution()
    minutes = sorted(row.getInt(0) for row in execution.executedPlan().executeCollect())
    scan = execution.executedPlan().collectLeaves().apply(0)
    return minutes, int(scan.metrics().apply("numOutputRows").value())


LAST = f"timestamp >= timestamp_millis({T0 + 590 * MINUTE})"
MIDDLE = (
    f"timestamp BETWEEN timestamp_millis({T0 + 300 * MINUTE}) "
    f"AND timestamp_millis({T0 + 310 * MINUTE})"
)


@pytest.mark.usefixtures("filter_pushdown")
@pytest.mark.parametrize(
    ("condition", "options", "expected", "fetched"),
    [
        (LAST, {}, range(590, 600), 11),
        (MIDDLE, {}, range(300, 311), 301),
        (MIDDLE, {"maxTimestampDelay": "0ms"}, range(300, 311), 13),
        ("offset >= 10 AND offset < 13", {}, range(20, 26), 6),
        ("partition = 1", {}, range(1, 600, 2), 300),
        ("partition IN (0, 7) AND offset = 5", {}, [10], 1),
        ("topic = 'another'", {}, [], 0),
        ("offset > 100000", {}, [], 0),
        ("value IS NOT NULL", {}, range(600), 600),
        ("offset < 3 OR partition = 0", {}, [1, 3, 5, *range(0, 600, 2)], 600),
    ],
    ids=[
        "last",
        "middle",
        "max delay",
        "offsets",
        "partition",
        "both",
        "topic",
        "far",
        "none",
        "or",
    ],
)
def test_filters_narrow_the_fetched_ranges(
    load: Load,
    minutes: str,
    condition: str,
    options: dict[str, str],
    expected: list[int],
    fetched: int,
) -> None:
    """
    From Spark 4.1 on, a query for some minutes, offsets or partitions fetches only those, and its
    result is the same as without push-down.
    """
    rows, record_count = run(load(subscribe=minutes, **options).where(condition))

    assert rows == sorted(expected)
    assert record_count <= (fetched + 1 if HAS_PUSHDOWN else RECORDS)


@pytest.mark.usefixtures("filter_pushdown")
def test_records_out_of_order_are_found(
    load: Load, topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    A filter on timestamps finds records with much earlier timestamps than their neighbours.
    """
    name = topic()
    late = [Record(str(n).encode(), timestamp=T0 + (n * 7919 % 1000) * 1000) for n in range(1000)]
    kafka_cluster.produce(name, late)
    condition = f"timestamp < timestamp_millis({T0 + 20_000})"

    rows, _ = run(load(subscribe=name).where(condition))

    assert len(rows) == 20


def test_filters_without_pushdown(load: Load, minutes: str) -> None:
    """
    Without push-down, Spark's default for Python sources, filters return the same rows.
    """
    rows, record_count = run(load(subscribe=minutes).where("offset = 5"))

    assert (rows, record_count) == ([10, 11], RECORDS)
