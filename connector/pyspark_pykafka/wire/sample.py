"""
How many bytes an offset takes in the log, from a look at the records that are to be read next.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from pyspark_pykafka.wire._records import next_offset
from pyspark_pykafka.wire.asking import Asking
from pyspark_pykafka.wire.cluster import borrowed_cluster
from pyspark_pykafka.wire.partition import OutOfRangeError, PartitionClient

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_pykafka.engine import FetchSettings
    from pyspark_pykafka.offsets import Offsets, TopicPartition
    from pyspark_pykafka.wire.cluster import Cluster

_SAMPLE_BYTES = 32 * 1024
_OFFSET = struct.Struct(">q")


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
        partition = PartitionClient(cluster, tp, settings.isolation_level)
        try:
            fetched = Asking(partition, settings.poll_timeout_ms).fetch(position, _SAMPLE_BYTES, 0)
        except OutOfRangeError:
            continue
        if fetched is None or len(fetched.records) < _OFFSET.size:
            continue
        (first,) = _OFFSET.unpack_from(fetched.records)
        after = next_offset(fetched.records, first)
        if after > first:
            yield tp, len(fetched.records) / (after - first)
