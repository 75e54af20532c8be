"""
Filters that Spark pushes down: fewer records are fetched, and none is missing.
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

PUSHES = SPARK_VERSION >= (4, 1)
MINUTE = 60_000
T0 = 1_700_000_000_000
RECORDS = 600


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[None]:
    """
    Let Spark push filters down, which it does for Python sources only when it is told to.
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
    Return a topic of two partitions with a record a minute, in turns, over ten hours.
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
    Return the numbers that a query gives, sorted, and how many records its scan delivered.
    """
    numbers = frame.selectExpr("CAST(CAST(value AS STRING) AS INT) AS number")
    execution = numbers._jdf.queryExecution()
    found = sorted(row.getInt(0) for row in execution.executedPlan().executeCollect())
    scan = execution.executedPlan().collectLeaves().apply(0)
    return found, int(scan.metrics().apply("numOutputRows").value())


LAST = f"timestamp >= timestamp_millis({T0 + 590 * MINUTE})"
MIDDLE = (
    f"timestamp BETWEEN timestamp_millis({T0 + 300 * MINUTE}) "
    f"AND timestamp_millis({T0 + 310 * MINUTE})"
)


@pytest.mark.usefixtures("pushing")
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
    ids=["last", "middle", "promise", "offsets", "partition", "both", "topic", "far", "none", "or"],
)
def test_filters_cut_what_is_fetched(
    load: Load,
    minutes: str,
    condition: str,
    options: dict[str, str],
    expected: list[int],
    fetched: int,
) -> None:
    """
    A query for some minutes, offsets or partitions reads those, from Spark 4.1 on; its result is
    that of a query whose filters are not pushed down.
    """
    found, read = run(load(subscribe=minutes, **options).where(condition))

    assert found == sorted(expected)
    assert read <= (fetched + 1 if PUSHES else RECORDS)


@pytest.mark.usefixtures("pushing")
def test_records_out_of_order_are_found(
    load: Load, topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    A record stamped long before its neighbours is not lost to a filter on time.
    """
    name = topic()
    late = [Record(str(n).encode(), timestamp=T0 + (n * 7919 % 1000) * 1000) for n in range(1000)]
    kafka_cluster.produce(name, late)
    condition = f"timestamp < timestamp_millis({T0 + 20_000})"

    found, _ = run(load(subscribe=name).where(condition))

    assert len(found) == 20


def test_nothing_changes_where_filters_are_not_pushed(load: Load, minutes: str) -> None:
    """
    By default Spark pushes nothing down to Python sources; queries with filters work all the same.
    """
    found, read = run(load(subscribe=minutes).where("offset = 5"))

    assert (found, read) == ([10, 11], RECORDS)
