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
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

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


#: The ranges of these filters are those of test_filter_pushdown.py.
MORE_FILTERS: dict[str, tuple[str, dict[str, str], Sequence[int], int]] = {
    "partition": ("partition = 1", {}, range(1, 600, 2), 300),
    "topic": ("topic = 'another'", {}, [], 0),
    "last hour": ("timestamp >= current_timestamp() - INTERVAL 1 HOUR", {}, [], 0),
    "far": ("offset > 100000", {}, [], 0),
    "none": ("value IS NOT NULL", {}, range(600), 600),
}


@pytest.mark.usefixtures("filter_pushdown")
@pytest.mark.parametrize(
    ("condition", "options", "expected", "fetched"),
    [
        pytest.param(LAST, {}, range(590, 600), 11, id="last"),
        pytest.param(MIDDLE, {}, range(300, 311), 301, id="middle"),
        pytest.param(MIDDLE, {"maxTimestampDelay": "0ms"}, range(300, 311), 13, id="max delay"),
        pytest.param("offset >= 10 AND offset < 13", {}, range(20, 26), 6, id="offsets"),
        pytest.param("partition IN (0, 7) AND offset = 5", {}, [10], 1, id="both"),
        pytest.param("offset < 3 OR partition = 0", {}, [1, 3, 5, *range(0, 600, 2)], 600, id="or"),
        *(
            pytest.param(*row, id=name, marks=pytest.mark.soak)
            for name, row in MORE_FILTERS.items()
        ),
    ],
)
def test_filters_narrow_the_fetched_ranges(
    load: Load,
    minutes: str,
    condition: str,
    options: dict[str, str],
    expected: Sequence[int],
    fetched: int,
) -> None:
    """
    From Spark 4.1 on, with pushDownFilters a query for some minutes, offsets or partitions fetches
    only those, and its result is the same as without push-down.
    """
    frame = load(subscribe=minutes, pushDownFilters="true", **options)
    rows, record_count = run(frame.where(condition))

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

    rows, _ = run(load(subscribe=name, pushDownFilters="true").where(condition))

    assert len(rows) == 20


@pytest.mark.parametrize("push_down", ["true", "false"])
def test_filters_without_pushdown(load: Load, minutes: str, push_down: str) -> None:
    """
    If Spark pushes no filters down, as by default for Python sources, filters return the same rows.
    """
    frame = load(subscribe=minutes, pushDownFilters=push_down)
    rows, record_count = run(frame.where("offset = 5"))

    assert (rows, record_count) == ([10, 11], RECORDS)


def _queries_in_turn(frame: DataFrame, _: str) -> list[int]:
    filtered = frame.where("partition = 0")
    return [frame.count(), filtered.count(), frame.count(), frame.where("offset < 5").count()]


def _after_a_filter_that_did_not_run(frame: DataFrame, _: str) -> list[int]:
    frame.where("partition = 0")._jdf.queryExecution().executedPlan()
    return [frame.count()]


def _union(frame: DataFrame, _: str) -> list[int]:
    return [frame.where("partition = 0").union(frame.where("partition = 1")).count()]


def _self_join(frame: DataFrame, _: str) -> list[int]:
    early, late = frame.where("offset < 3"), frame.where("offset >= 3").select("partition")
    return [early.join(late, "partition").count()]


def _view_of_a_frame(frame: DataFrame, _: str) -> list[int]:
    spark, name = frame.sparkSession, "view_of_a_frame"
    frame.createOrReplaceTempView(name)
    try:
        return [spark.sql(query.format(name)).count() for query in VIEW_QUERIES]
    finally:
        spark.catalog.dropTempView(name)


def _view_of_sql(frame: DataFrame, options: str) -> list[int]:
    spark, name = frame.sparkSession, "view_of_sql"
    spark.sql(f"CREATE TEMPORARY VIEW {name} USING pykafka OPTIONS ({options})")
    try:
        return [spark.sql(query.format(name)).count() for query in VIEW_QUERIES]
    finally:
        spark.catalog.dropTempView(name)


VIEW_QUERIES = ("SELECT * FROM {} WHERE offset >= 298", "SELECT * FROM {}")


@pytest.mark.usefixtures("filter_pushdown")
@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        (_queries_in_turn, [600, 300, 600, 10]),
        (_self_join, [2 * 3 * 297]),
        (_view_of_sql, [4, 600]),
        pytest.param(_after_a_filter_that_did_not_run, [600], marks=pytest.mark.soak),
        pytest.param(_union, [600], marks=pytest.mark.soak),
        pytest.param(_view_of_a_frame, [4, 600], marks=pytest.mark.soak),
    ],
)
def test_one_load_with_several_filters(
    load: Load,
    minutes: str,
    kafka_cluster: KafkaCluster,
    counts: Callable[[DataFrame, str], list[int]],
    expected: list[int],
) -> None:
    """
    A DataFrame or view that several queries filter, or one query more than once, loses no rows:
    Spark keeps one plan for all of them, so filters do not narrow it by default.
    """
    options = f"`kafka.bootstrap.servers` '{kafka_cluster.bootstrap}', subscribe '{minutes}'"

    assert counts(load(subscribe=minutes), options) == expected


@pytest.fixture
def stream_frame(spark: SparkSession, minutes: str, kafka_cluster: KafkaCluster) -> DataFrame:
    """
    Return a stream of the topic ``minutes``, from its start.
    """
    options = {
        "kafka.bootstrap.servers": kafka_cluster.bootstrap,
        "subscribe": minutes,
        "startingOffsets": "earliest",
    }
    return spark.readStream.format("pykafka").options(**options).load()


def streamed_count(frame: DataFrame, checkpoint: Path) -> int:
    """
    Run a stream up to the present end of its topic, and return the number of rows.
    """
    counts: list[int] = []
    writer = frame.writeStream.foreachBatch(lambda batch, _: counts.append(batch.count()))
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    assert writer.start().awaitTermination(60), "the query did not end"
    return sum(counts)


@pytest.mark.usefixtures("filter_pushdown")
def test_a_static_side_that_another_query_filters(
    load: Load, minutes: str, stream_frame: DataFrame, tmp_path: Path
) -> None:
    """
    A stream that is joined with a topic finds all its records, whatever else filters that topic.
    """
    static = load(subscribe=minutes).select("partition", "offset")

    assert static.where("partition = 0").count() == 300
    # Not an equi-join, since Spark would add filters to it, and plan again to push them down.
    joined = stream_frame.where("partition = 0 AND offset = 0").crossJoin(static)
    assert streamed_count(joined, tmp_path / "joined") == RECORDS


@pytest.mark.usefixtures("filter_pushdown")
def test_two_streams_of_one_load(stream_frame: DataFrame, tmp_path: Path) -> None:
    """
    Two streams with different filters on one load() each have all rows that match their own filter:
    Spark pushes no filters into streams.
    """
    first = stream_frame.where("partition = 0 AND offset < 10")

    assert streamed_count(first, tmp_path / "first") == 10
    assert streamed_count(stream_frame.where("partition = 1"), tmp_path / "second") == 300
