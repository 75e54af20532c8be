"""
The metrics of real queries, as Prometheus scrapes them.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.streams import SECONDS, Stream, texts, values

from pyspark_pykafka.audit.observer import AuditListener, Auditor
from pyspark_pykafka.failures.dead_letters import DeadLetterTopic
from pyspark_pykafka.failures.foreach_batch import isolate_poison
from pyspark_pykafka.metrics.listener import MetricsListener
from pyspark_pykafka.spark.compat import PASSES_START_OFFSET
from pyspark_pykafka.testing import Record
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pyspark_pykafka.testing import KafkaCluster
    from pyspark_pykafka.testing.plugin import TopicFactory

DAY = 86_400


@pytest.fixture
def listening(spark: SparkSession) -> Iterator[Callable[..., MetricsListener]]:
    """
    Return a function that adds a listener; all are removed at the end.
    """
    added: list[MetricsListener] = []

    def add(**arguments: object) -> MetricsListener:
        added.append(MetricsListener(port=0, **arguments))  # type: ignore[arg-type]
        spark.streams.addListener(added[-1])
        return added[-1]

    yield add
    for listener in added:
        spark.streams.removeListener(listener)
        listener.close()


@dataclass
class Scrape:
    """
    The samples of one query in the exposition of a listener, or the samples of no query.
    """

    listener: MetricsListener
    query: StreamingQuery | None
    samples: dict[str, list[tuple[dict[str, str], float]]] = field(default_factory=dict)

    def update(self) -> None:
        query_id = None if self.query is None else str(self.query.id)
        url = f"http://127.0.0.1:{self.listener.port}/metrics"
        with urlopen(url, timeout=SECONDS) as response:
            text = response.read().decode()
        self.samples = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.labels.get("query_id") == query_id:
                    pair = (sample.labels, sample.value)
                    self.samples.setdefault(sample.name, []).append(pair)

    def total(self, name: str, **labels: str) -> float | None:
        """
        Return the sum of a metric over the series with these labels; None if there are none.
        """
        self.update()
        values = [
            value
            for actual, value in self.samples.get(name, [])
            if labels.items() <= actual.items()
        ]
        return sum(values) if values else None

    def await_total(self, name: str, expected: float | None, **labels: str) -> None:
        """
        Wait until the metric has this sum.
        """

        def differing() -> str | None:
            total = self.total(name, **labels)
            return None if total == expected else f"{name} is {total}, not {expected}"

        wait_until(differing, SECONDS)


@pytest.mark.smoke
def test_failed_batch_is_replayed(
    kafka_cluster: KafkaCluster,
    topic: TopicFactory,
    stream: Callable[..., Stream],
    listening: Callable[..., MetricsListener],
) -> None:
    """
    Offsets, batches and rows are counted over a failure and a restart; the batch that failed counts
    as a failure, and as a replay once it is finished.
    """
    name = topic(2)
    query = stream(subscribe=name)
    listener = listening()
    kafka_cluster.produce(name, values(0, 20))
    scrape = Scrape(listener, query.start())
    scrape.await_total("pykafka_read_offsets_total", 20, topic=name)
    scrape.await_total("pykafka_input_rows_total", 20, source="0")
    assert scrape.total("pykafka_replayed_batches_total") == 0
    assert scrape.total("pykafka_query_running") == 1

    query.fail = True
    kafka_cluster.produce(name, values(20, 30))
    scrape.await_total("pykafka_query_running", 0)
    assert scrape.total("pykafka_query_failures_total") == 1
    assert scrape.total("pykafka_read_offsets_total", topic=name) == 20

    query.fail = False
    query.start()
    scrape.await_total("pykafka_read_offsets_total", 30, topic=name)
    scrape.await_total("pykafka_replayed_batches_total", 1)
    assert query.values == texts(0, 30)
    assert scrape.total("pykafka_query_starts_total") == 2
    assert scrape.total("pykafka_batch_seconds_total", phase="commitOffsets") is not None
    kafka_cluster.produce(name, values(30, 40))
    scrape.await_total("pykafka_read_offsets_total", 40, topic=name)
    scrape.await_total("pykafka_lag_offsets", 0 if PASSES_START_OFFSET else None)
    assert scrape.total("pykafka_replayed_batches_total") == 1


def test_lag_of_a_backlog_during_a_batch(
    kafka_cluster: KafkaCluster,
    spark: SparkSession,
    topic: TopicFactory,
    checkpoint: str,
    listening: Callable[..., MetricsListener],
) -> None:
    """
    A listener that has the query's options reports growing lag while a batch is stuck; a backlog
    written before the listener was added is as old as its first unread record.
    """
    name = topic(1)
    day_ago = round((time.time() - DAY) * 1000)
    kafka_cluster.produce(name, [Record(b"%d" % i, timestamp=day_ago) for i in range(10)])
    options = {
        "kafka.bootstrap.servers": kafka_cluster.bootstrap,
        "subscribe": name,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "4",
    }
    listener = listening(options=options, refresh_seconds=0.2)
    release = threading.Event()

    def hold_second_batch(_: DataFrame, batch: int) -> None:
        if batch > 0:
            release.wait(SECONDS)

    frame = spark.readStream.format("pykafka").options(**options).load()
    query = (
        frame.writeStream.foreachBatch(hold_second_batch)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    scrape = Scrape(listener, query)

    scrape.await_total("pykafka_lag_offsets", 6, topic=name)
    kafka_cluster.produce(name, values(10, 15))
    scrape.await_total("pykafka_lag_offsets", 11, topic=name)
    wait_until(lambda: _why_not_a_day(scrape), SECONDS)

    release.set()
    scrape.await_total("pykafka_lag_offsets", 0, topic=name)
    assert scrape.total("pykafka_lag_seconds") == 0
    query.stop()


def test_dead_letters_are_counted_for_their_query(
    kafka_cluster: KafkaCluster,
    spark: SparkSession,
    topic: TopicFactory,
    checkpoint: str,
    listening: Callable[..., MetricsListener],
) -> None:
    """
    Records that were set aside are counted under their query and their source partition.
    """
    name, letters = topic(2), topic(1)
    options = {
        "kafka.bootstrap.servers": kafka_cluster.bootstrap,
        "subscribe": name,
        "startingOffsets": "earliest",
    }
    kafka_cluster.produce(name, [Record(b"%d" % i, partition=i % 2) for i in range(10)])
    listener = listening()
    dead_letter = listener.count_dead_letters(DeadLetterTopic(letters, options))
    frame = spark.readStream.format("pykafka").options(**options).load()
    query = (
        frame.writeStream.foreachBatch(isolate_poison(_reject_seven, dead_letter))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(SECONDS), "the query did not end"

    scrape = Scrape(listener, query)
    scrape.await_total("pykafka_dead_letters_total", 1, topic=name, partition="1")
    assert scrape.total("pykafka_dead_letters_total") == 1
    assert len(kafka_cluster.consume(letters)) == 1


def test_bad_records_are_counted_in_the_dead_letter_topic(
    kafka_cluster: KafkaCluster,
    spark: SparkSession,
    topic: TopicFactory,
    checkpoint: str,
    listening: Callable[..., MetricsListener],
) -> None:
    """
    A listener with the query's options reports each record that a task has set aside because it
    could not be decoded.
    """
    name, letters = topic(1), topic(1)
    options = {
        "kafka.bootstrap.servers": kafka_cluster.bootstrap,
        "subscribe": name,
        "startingOffsets": "earliest",
        "valueFormat": "json",
        "valueSchema": "n INT",
        "onBadRecord": "deadletter",
        "deadLetterTopic": letters,
    }
    scrape = Scrape(listening(options=options, refresh_seconds=0.2), None)
    metric = "pykafka_dead_letter_topic_end_offset"
    scrape.await_total(metric, 0, topic=letters, partition="0")

    kafka_cluster.produce(name, [Record(value) for value in (b'{"n": 1}', b"{", b"no")])
    query = (
        spark.readStream.format("pykafka")
        .options(**options)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(SECONDS), "the query did not end"
    scrape.await_total(metric, 2, topic=letters, partition="0")


# test_listener.py counts verdicts without Spark.
@pytest.mark.soak
def test_verdicts_of_an_audit_are_counted(
    kafka_cluster: KafkaCluster,
    spark: SparkSession,
    topic: TopicFactory,
    checkpoint: str,
    listening: Callable[..., MetricsListener],
) -> None:
    """
    Each audited micro-batch counts under its verdict: one that lost a record as missing, one
    without a fault as complete.
    """
    name = topic(1)
    options = {
        "kafka.bootstrap.servers": kafka_cluster.bootstrap,
        "subscribe": name,
        "startingOffsets": "earliest",
    }
    listener = listening()
    auditor = Auditor(name, options=options)
    audit = AuditListener(auditor, on_report=listener.record_audit)
    spark.streams.addListener(audit)
    frame = auditor.source(spark.readStream.format("pykafka").options(**options).load())
    faulty = auditor.sink(frame.where("cast(value as string) != '0007'"))
    kafka_cluster.produce(name, values(0, 10))
    query = faulty.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    scrape = Scrape(listener, None)
    try:
        metric = "pykafka_audited_batches_total"
        scrape.await_total(metric, 1, auditor=name, verdict="missing")
        assert scrape.total(metric, auditor=name) == 1

        kafka_cluster.produce(name, values(10, 20))
        scrape.await_total(metric, 1, auditor=name, verdict="complete")
        assert scrape.total(metric, auditor=name) == 2
    finally:
        query.stop()
        spark.streams.removeListener(audit)


def _why_not_a_day(scrape: Scrape) -> str | None:
    seconds = scrape.total("pykafka_lag_seconds") or 0
    return None if DAY - 1 <= seconds < 2 * DAY else f"the lag is {seconds} s, not a day"


def _reject_seven(frame: DataFrame, _: int) -> None:
    if frame.filter("cast(value as string) = '7'").count():
        msg = "no sevens"
        raise ValueError(msg)
