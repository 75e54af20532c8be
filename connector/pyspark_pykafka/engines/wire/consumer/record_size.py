"""
How many bytes an offset takes in the log, from a look at the records that are to be read next.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.byte_density import LOOK_BYTES
from pyspark_pykafka.engines.wire.consumer.partition_fetcher import (
    OutOfRangeError,
    PartitionFetcher,
)
from pyspark_pykafka.engines.wire.consumer.retrying_fetcher import RetryingFetcher
from pyspark_pykafka.engines.wire.network.cluster import borrowed_cluster

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_pykafka.engines.contract import FetchSettings
    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.offsets import Offsets, TopicPartition

# A record batch as far as its size and offsets go: base offset, length, format, then at 23 the last
# delta. In older formats there is something else; such a message is the last of its offsets.
_FRONT = struct.Struct(">qi4xb6xi")
_AFTER_LENGTH = 12
_BATCHES = 2

# The leader, the replica that it names, and the leader again where that one has no records.
_MOST_LOOKS = 3


def bytes_per_offset(positions: Offsets, settings: FetchSettings) -> dict[TopicPartition, float]:
    """
    Return the bytes that an offset takes after each position, compressed as they lie in the log.

    Partitions without a record there are left out. One request for each partition.
    """
    with borrowed_cluster(settings.kafka) as cluster:
        return dict(_samples(cluster, positions, settings))


def _samples(
    cluster: Cluster, positions: Offsets, settings: FetchSettings
) -> Iterable[tuple[TopicPartition, float]]:
    for tp, position in positions.items():
        partition = PartitionFetcher(cluster, tp, settings.isolation_level)
        size, offsets = _looked(RetryingFetcher(partition, settings.poll_timeout_ms), position)
        if offsets > 0:
            yield tp, size / offsets


def _looked(asking: RetryingFetcher, position: int) -> tuple[int, int]:
    """
    Return what :func:`measured` does of the records there; a leader may name a replica first.
    """
    for _ in range(_MOST_LOOKS):
        try:
            fetched = asking.fetch(position, LOOK_BYTES, 0)
        except OutOfRangeError:
            break
        if fetched is None:
            break
        if fetched.records or (fetched.of_leader and not fetched.redirected):
            return measured(fetched.records, position)
    return 0, 0


def measured(records: memoryview, position: int) -> tuple[int, int]:
    """
    Return how many bytes the record batches take, and how many offsets they cover from a position.

    The last one may be cut off: its header says how large it is, so its bytes and its offsets both
    count. Offsets without a record before or between them count, too: they take no bytes.
    """
    at, start, after = 0, position, position
    while len(records) - at >= _FRONT.size:
        base, length, magic, delta = _FRONT.unpack_from(records, at)
        start = min(start, base)
        after = max(after, base + (delta if magic >= _BATCHES else 0) + 1)
        at += _AFTER_LENGTH + max(length, 0)
    return at, after - start
