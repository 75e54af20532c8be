"""
Samples the number of bytes per offset in the log, from the records at a position.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.byte_density import SAMPLE_BYTES
from pyspark_pykafka.engines.wire.consumer.partition_fetcher import (
    OutOfRangeError,
    PartitionFetcher,
)
from pyspark_pykafka.engines.wire.consumer.retrying_fetcher import RetryingFetcher
from pyspark_pykafka.engines.wire.network.cluster_pool import borrowed_cluster

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_pykafka.engines.contract import FetchSettings
    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.offsets import Offsets, TopicPartition

# The start of a record batch: base offset, length, magic and, at byte 23, the last offset delta. In
# older formats byte 23 is another field, and the base offset is that of the last record.
_BATCH_START = struct.Struct(">qi4xb6xi")
_LENGTH_END = 12
_RECORD_BATCH_MAGIC = 2

# The leader, the replica that it names, and the leader again if the replica has no records.
_MAX_FETCHES = 3


def bytes_per_offset(positions: Offsets, settings: FetchSettings) -> dict[TopicPartition, float]:
    """
    Return the bytes per offset from each position on, as the log stores them (compressed).

    Sends one request per partition. Partitions without records there are left out.
    """
    with borrowed_cluster(settings.kafka) as cluster:
        return dict(_samples(cluster, positions, settings))


def _samples(
    cluster: Cluster, positions: Offsets, settings: FetchSettings
) -> Iterable[tuple[TopicPartition, float]]:
    for tp, position in positions.items():
        partition = PartitionFetcher(cluster, tp, settings.isolation_level)
        fetcher = RetryingFetcher(
            partition, settings.poll_timeout_ms, settings.max_throttle_seconds
        )
        size_bytes, offsets = _sample(fetcher, position)
        if offsets > 0:
            yield tp, size_bytes / offsets


def _sample(fetcher: RetryingFetcher, position: int) -> tuple[int, int]:
    """
    Return :func:`measure_batches` of the records from the position on, read from the leader or the
    replica that it names.
    """
    for _ in range(_MAX_FETCHES):
        try:
            fetched = fetcher.fetch(position, SAMPLE_BYTES, 0)
        except OutOfRangeError:
            break
        if fetched is None:
            break
        if fetched.records or (fetched.from_leader and not fetched.is_redirect):
            return measure_batches(fetched.records, position)
    return 0, 0


def measure_batches(records: memoryview, position: int) -> tuple[int, int]:
    """
    Return the bytes of the record batches, and the number of offsets that they cover.

    The offsets count from ``position``, or from the first batch's base offset if that is lower,
    including those without a record before or between batches. If the last batch is cut off, its
    header has its size and offsets, so it counts whole.
    """
    size_bytes, start, end = 0, position, position
    while len(records) - size_bytes >= _BATCH_START.size:
        base, length, magic, delta = _BATCH_START.unpack_from(records, size_bytes)
        start = min(start, base)
        end = max(end, base + (delta if magic >= _RECORD_BATCH_MAGIC else 0) + 1)
        size_bytes += _LENGTH_END + max(length, 0)
    return size_bytes, end - start
