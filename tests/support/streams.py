"""
Streaming queries for tests: they collect rows by batch, and can be stopped and restarted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import NewPartitions

from pyspark_pykafka.spark.compat import PASSES_START_OFFSET
from pyspark_pykafka.testing import Record
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pyspark_pykafka.testing import KafkaCluster

SECONDS = 60


@dataclass
class Stream:
    """
    A query that collects (partition, offset, value) by batch, and can be stopped and restarted.
    """

    spark: SparkSession
    options: dict[str, str]
    checkpoint: str
    connector: str = "pykafka"
    batches: dict[int, list[tuple[int, int, str]]] = field(default_factory=dict)
    query: StreamingQuery | None = None
    fail: bool = False
    before_failing: Callable[[], None] = lambda: None
    calls: int = 0

    def start(self, **trigger: Any) -> StreamingQuery:
        """
        Start the query, or restart it from the checkpoint.
        """
        frame = self.spark.readStream.format(self.connector).options(**self.options).load()
        writer = frame.writeStream.foreachBatch(self._gather)
        writer = writer.option("checkpointLocation", self.checkpoint)
        self.query = (writer.trigger(**trigger) if trigger else writer).start()
        return self.query

    def stop(self) -> None:
        """
        Stop the query if it runs.
        """
        if self.query is not None:
            self.query.stop()

    def drain(self) -> list[str]:
        """
        Run up to the current latest offsets, and return all values collected so far, sorted.

        Before Spark 4.2 an availableNow run is one batch, so draining takes several runs.
        """
        before = -1
        while before < self.calls:
            before = self.calls
            query = self.start(availableNow=True)
            assert query.awaitTermination(SECONDS), "the query did not end"
            if PASSES_START_OFFSET:
                break
        return self.values

    def await_values(self, expected: list[str]) -> None:
        """
        Wait until a running query has collected exactly these values, in any order.
        """

        def missing() -> str | None:
            assert self.query is not None
            assert self.query.exception() is None
            values = self.values
            return None if values == sorted(expected) else f"found {values}, not {sorted(expected)}"

        wait_until(missing, SECONDS)

    def logged_offsets(self) -> list[dict[str, Any]]:
        """
        Return the offset documents of all batches in the checkpoint.
        """
        folder = Path(self.checkpoint) / "offsets"
        numbers = sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())
        return [json.loads((folder / str(n)).read_text().splitlines()[2]) for n in numbers]

    def _gather(self, frame: DataFrame, batch: int) -> None:
        self.calls += 1
        rows = frame.selectExpr("partition", "offset", "cast(value as string) value").collect()
        if self.fail:
            self.before_failing()
            msg = "planted failure"
            raise RuntimeError(msg)
        self.batches[batch] = [tuple(row) for row in rows]

    @property
    def values(self) -> list[str]:
        """
        All collected values, sorted.
        """
        return sorted(v for rows in self.batches.values() for *_, v in rows)

    @property
    def sizes(self) -> list[int]:
        """
        The number of records of each batch.
        """
        return [len(rows) for _, rows in sorted(self.batches.items())]


def values(first: int, end: int) -> list[Record]:
    """
    Return one record for each number in ``[first, end)``, with the number as value.
    """
    return [Record(f"{i:04}".encode(), str(i).encode()) for i in range(first, end)]


def texts(first: int, end: int) -> list[str]:
    """
    Return the values that a stream collects from the records of :func:`values`.
    """
    return [f"{i:04}" for i in range(first, end)]


def add_partitions(kafka: KafkaCluster, topic: str, count: int) -> None:
    """
    Increase the number of partitions of a topic to ``count``.
    """
    admin = kafka.admin()
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(SECONDS)
    _await_partitions(kafka, topic, count)


def delete_topic(kafka: KafkaCluster, topic: str) -> None:
    """
    Delete a topic, and wait until no broker lists it.
    """
    admin = kafka.admin()
    admin.delete_topics([topic])[topic].result(SECONDS)
    _await_partitions(kafka, topic, 0)


def recreate_topic(kafka: KafkaCluster, topic: str, partitions: int = 1) -> None:
    """
    Delete a topic, and create another one of the same name.
    """
    delete_topic(kafka, topic)
    kafka.create_topic(topic, partitions)
    _await_partitions(kafka, topic, partitions)


def _await_partitions(kafka: KafkaCluster, topic: str, count: int) -> None:
    admin = kafka.admin()

    def missing() -> str | None:
        metadata = admin.list_topics(timeout=SECONDS).topics.get(topic)
        partitions = 0 if metadata is None else len(metadata.partitions)
        return None if partitions == count else f"{topic} has {partitions} partitions, not {count}"

    wait_until(missing, SECONDS)
