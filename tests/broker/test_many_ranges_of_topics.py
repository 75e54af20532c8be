"""
Many ranges of several topics have the same rows, whether they are read together or each alone, with
both engines.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from tests.support.fetching import SCHEMA, settings

from pyspark_pykafka.engines.selection import fetch, fetch_many
from pyspark_pykafka.offsets import OffsetRange, TopicPartition
from pyspark_pykafka.testing import Record
from pyspark_pykafka.testing.plugin import unique_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_pykafka.testing import KafkaCluster

PARTITIONS, RECORDS = 4, 60


def rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    table = pa.Table.from_batches(list(batches), SCHEMA)
    table.validate(full=True)
    return list(table.to_pylist())


@pytest.fixture(scope="module")
def ranges(kafka_cluster: KafkaCluster) -> list[OffsetRange]:
    """
    Return the ranges of two topics with records of up to 80 KB, aborted ones and markers.
    """
    names = [
        kafka_cluster.create_topic(unique_name(f"many-ranges-{number}"), PARTITIONS)
        for number in range(2)
    ]
    plain = [
        Record(b"%d" % n * (20_000 if n % 9 == 0 else 10), partition=n % PARTITIONS)
        for n in range(RECORDS)
    ]
    kafka_cluster.produce(names[0], plain, {"compression.type": "lz4"})
    writer = Producer({"bootstrap.servers": kafka_cluster.bootstrap, "transactional.id": names[1]})
    writer.init_transactions(30)
    for n in range(RECORDS):
        writer.begin_transaction()
        writer.produce(names[1], b"%d" % n, partition=n % PARTITIONS)
        # An abort drops the records that have not been sent.
        writer.flush(30)
        (writer.abort_transaction if n % 3 else writer.commit_transaction)(30)
    kafka_cluster.produce(names[1], [Record(b"last", partition=n) for n in range(PARTITIONS)])
    return [
        OffsetRange(TopicPartition(name, number), number, end)
        for name, end in zip(names, (RECORDS // PARTITIONS, 2 * RECORDS // PARTITIONS), strict=True)
        for number in range(PARTITIONS)
    ]


@pytest.mark.parametrize("max_records", [None, 1, 7])
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("engine", ["wire", "librdkafka"])
def test_many_ranges_are_read_as_each_alone(
    kafka_cluster: KafkaCluster,
    ranges: list[OffsetRange],
    engine: str,
    isolation: str,
    max_records: int | None,
) -> None:
    """
    Reads of all records, or of the first records of each range, have the same rows as a read of
    each range alone.
    """
    read_settings = settings(kafka_cluster.bootstrap, engine, isolation_level=isolation)
    batches: dict[OffsetRange, list[pa.RecordBatch]] = defaultdict(list)

    for offset_range, batch in fetch_many(ranges, read_settings, max_records):
        batches[offset_range].append(batch)

    assert batches.keys() == set(ranges)
    for offset_range in ranges:
        alone = rows(fetch(offset_range, read_settings))
        assert rows(batches[offset_range]) == alone[:max_records]
