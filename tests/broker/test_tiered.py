"""
Topics in tiered storage (KIP-405) on brokers that limit remote reads (KIP-956): no record is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support import fetching
from tests.support.streams import Stream

from pyspark_pykafka.engines.selection import fetch
from pyspark_pykafka.offsets import OffsetRange, TopicPartition
from pyspark_pykafka.testing import KafkaCluster, Record
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

TOPIC = "tiered"
COUNT = 4_000
RECORDS = [Record(b"%d." % number + b"x" * 990) for number in range(COUNT)]
# Compared with `is True`, since pytest takes minutes to show how two such lists differ.
VALUES = [record.value or b"" for record in RECORDS]
SEGMENT_BYTES = 1 << 20
TOPIC_SETTINGS = {
    "remote.storage.enable": "true",
    "segment.bytes": SEGMENT_BYTES,
    "local.retention.bytes": 1,
    "file.delete.delay.ms": 100,
}
#: Less than the size of one fetch, so that the following responses are empty.
QUOTA = {
    "remote.log.manager.fetch.max.bytes.per.second": SEGMENT_BYTES,
    "remote.log.manager.fetch.quota.window.num": 2,
}


@pytest.fixture(scope="module")
def tiered() -> Iterator[KafkaCluster]:
    """
    A topic with only its last segment on the broker's disk.
    """
    with KafkaCluster(tiered=True, config=QUOTA) as kafka:
        kafka.create_topic(TOPIC, 1, TOPIC_SETTINGS)
        kafka.produce(TOPIC, RECORDS)
        wait_until(lambda: still_local(kafka), 60)
        yield kafka


def still_local(kafka: KafkaCluster) -> str | None:
    """
    Return the segments that the broker still has, or None if only the last one is left.
    """
    segments = sorted(kafka.data_folder().glob(f"{TOPIC}-0/*.log"))
    oldest_is_gone = segments[0].name.strip("0") != ".log"
    return None if len(segments) == 1 and oldest_is_gone else f"{segments} are local"


def test_plain_client_reads_every_record(tiered: KafkaCluster) -> None:
    """
    A plain client reads all the records that the other tests expect.
    """
    assert ([record.value for record in tiered.consume(TOPIC)] == VALUES) is True


@pytest.mark.parametrize(
    ("engine", "isolation"),
    [
        ("wire", "read_uncommitted"),
        ("wire", "read_committed"),
        ("librdkafka", "read_uncommitted"),
    ],
)
def test_engine_reads_every_record(tiered: KafkaCluster, engine: str, isolation: str) -> None:
    """
    A response without records, while the quota is used up, is not a gap: each offset is read in
    order.
    """
    offset_range = OffsetRange(TopicPartition(TOPIC, 0), 0, COUNT)
    settings = fetching.settings(
        tiered.bootstrap, engine, schema=fetching.VALUES, isolation_level=isolation
    )
    rows = [row for batch in fetch(offset_range, settings) for row in batch.to_pylist()]

    assert len(rows) == COUNT
    assert ([(row["offset"], row["value"]) for row in rows] == list(enumerate(VALUES))) is True


def test_batch_query_reads_each_record_once(tiered: KafkaCluster, spark: SparkSession) -> None:
    """
    A batch query whose tasks share the quota reads each record once.
    """
    reader = spark.read.format("pykafka").option("kafka.bootstrap.servers", tiered.bootstrap)
    frame = reader.options(subscribe=TOPIC, minPartitions=4).load()

    rows = frame.orderBy("offset").select("offset", "value").collect()
    assert len(rows) == COUNT
    assert ([tuple(row) for row in rows] == list(enumerate(VALUES))) is True


@pytest.mark.parametrize("available_now", [False, True])
def test_stream_reads_each_record_once(
    tiered: KafkaCluster, spark: SparkSession, checkpoint: str, *, available_now: bool
) -> None:
    """
    A stream, and an availableNow run, with several micro-batches read each record once.
    """
    options = {
        "kafka.bootstrap.servers": tiered.bootstrap,
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(COUNT // 3 + 1),
    }
    stream = Stream(spark, options, checkpoint)
    expected = sorted(value.decode() for value in VALUES)

    if available_now:
        values_read = stream.drain()
    else:
        stream.start()
        stream.await_values(expected)
        stream.stop()
        values_read = stream.values

    assert len(values_read) == COUNT
    assert (values_read == expected) is True
