"""
Samples the number of bytes per offset in the log, from the records at a position.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.byte_density import SAMPLE_BYTES, DensitySamples
from pyspark_pykafka.engines.wire.consumer.leader_fetches import LeaderFetches
from pyspark_pykafka.engines.wire.consumer.partition_fetcher import (
    OutOfRangeError,
    PartitionFetcher,
)
from pyspark_pykafka.engines.wire.consumer.retrying_fetcher import RetryingFetcher
from pyspark_pykafka.engines.wire.network.cluster_pool import borrowed_cluster
from pyspark_pykafka.errors import PykafkaError

if TYPE_CHECKING:
    from pyspark_pykafka.engines.contract import FetchSettings
    from pyspark_pykafka.engines.wire.protocol.fetch_response import FetchResponse
    from pyspark_pykafka.offsets import Offsets, TopicPartition

# The start of a record batch: base offset, length, magic and, at byte 23, the last offset delta. In
# older formats byte 23 is another field, and the base offset is that of the last record.
_BATCH_START = struct.Struct(">qi4xb6xi")
_LENGTH_END = 12
_RECORD_BATCH_MAGIC = 2

# Fetches go to the leader, to the replica that it names, and to the leader again if the replica has
# no records.
_MAX_FETCHES = 3

_MAX_FAILED_SAMPLES = 3


def sample_byte_densities(positions: Offsets, settings: FetchSettings) -> DensitySamples:
    """
    Return the bytes per offset from each position on, as the log stores them (compressed), and the
    retriable errors of partitions.

    Sends one request to each leader for many partitions. A partition without a usable response is
    sampled individually. Partitions without records at their position are left out.
    """
    return _Sampling(dict(positions), settings).samples()


@dataclass(slots=True)
class _Sampling:
    pending: Offsets
    settings: FetchSettings
    densities: dict[TopicPartition, float] = field(init=False, default_factory=dict)
    errors: dict[TopicPartition, PykafkaError] = field(init=False, default_factory=dict)

    def samples(self) -> DensitySamples:
        fetches = LeaderFetches(self.settings, SAMPLE_BYTES)
        while len(self.pending) > 1:
            responses = [(tp, *self._measure(tp, r)) for tp, r in fetches.fetch(self.pending)]
            for tp, size_bytes, offsets in responses:
                self._add(tp, size_bytes, offsets)
            if not responses:
                break
            # One failed partition is sampled individually, which waits until a leader is elected.
            # The others follow in the next round.
            for tp in sorted(fetches.failed)[:1]:
                self._sample_one(tp)
        for tp in list(self.pending):
            self._sample_one(tp)
        return DensitySamples(self.densities, self.errors)

    def _measure(self, tp: TopicPartition, response: FetchResponse) -> tuple[int, int]:
        return measure_batches(response.records, self.pending[tp])

    def _add(self, tp: TopicPartition, size_bytes: int, offsets: int) -> None:
        del self.pending[tp]
        if offsets > 0:
            self.densities[tp] = size_bytes / offsets

    def _sample_one(self, tp: TopicPartition) -> None:
        """
        Add the sample of one partition, or its error.

        Each failed sample waits for a timeout, so after a few of them the remaining partitions get
        the last error without a request.
        """
        if len(self.errors) >= _MAX_FAILED_SAMPLES:
            self.errors[tp] = next(reversed(self.errors.values()))
            del self.pending[tp]
            return
        with borrowed_cluster(self.settings.kafka) as cluster:
            partition = PartitionFetcher(cluster, tp, self.settings.isolation_level)
            fetcher = RetryingFetcher(
                partition, self.settings.poll_timeout_ms, self.settings.max_throttle_seconds
            )
            try:
                size_bytes, offsets = _sample(fetcher, self.pending[tp])
            except PykafkaError as error:
                if not error.retriable:
                    raise
                self.errors[tp] = error
                size_bytes = offsets = 0
        self._add(tp, size_bytes, offsets)


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
    including those without a record before or between batches. A last batch that is cut off counts
    in full, since its header states its size and offsets.
    """
    size_bytes, start, end = 0, position, position
    while len(records) - size_bytes >= _BATCH_START.size:
        base, length, magic, delta = _BATCH_START.unpack_from(records, size_bytes)
        start = min(start, base)
        end = max(end, base + (delta if magic >= _RECORD_BATCH_MAGIC else 0) + 1)
        size_bytes += _LENGTH_END + max(length, 0)
    return size_bytes, end - start
