"""
The topic in which exactly-once streams tell what they have committed: read to a point, appended to.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from pyspark_pykafka.engines.contract import FetchSettings, Watermarks
from pyspark_pykafka.engines.wire.consumer.partition_fetcher import PartitionFetcher
from pyspark_pykafka.engines.wire.consumer.range_reader import fetch_from
from pyspark_pykafka.engines.wire.consumer.retrying_fetcher import RetryingFetcher
from pyspark_pykafka.engines.wire.producer.sender import Sender
from pyspark_pykafka.engines.wire.producer.session import IdempotentSession
from pyspark_pykafka.engines.wire.records.arrow_encoder import encode_records
from pyspark_pykafka.engines.wire.records.record_batch import ProducerIdAndEpoch
from pyspark_pykafka.errors import DataLossError, TimeoutExceededError
from pyspark_pykafka.offsets import OffsetRange, TopicPartition
from pyspark_pykafka.retry import Backoff, Deadline
from pyspark_pykafka.schema import SOURCE_TYPES
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.sink.ledger_entries import INTENT_KEY, from_record, to_record
from pyspark_pykafka.sink.ledger_retries import missing_entries_error, retry_ledger_read
from pyspark_pykafka.sink.replay import covers_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.settings.wire_config import ProducerConfig
    from pyspark_pykafka.sink.ledger_entries import EntriesWithOffsets, Entry, Intent

T = TypeVar("T")

#: The one partition of every ledger: its order is what decides.
PARTITION = 0

_COMMITTED, _ALL = "read_committed", "read_uncommitted"
_SCHEMA = pa.schema([(name, SOURCE_TYPES[name]) for name in ("offset", "key", "value")])
_MEMORY_BYTES = 64 * 2**20
_LEAST_PAUSE = 0.005
# What one look for its offsets may take, before another one.
_LOOK_MS = 5_000

# Who appends an intent needs no sequence numbers: told twice, it says the same.
_NO_PRODUCER_ID = ProducerIdAndEpoch(-1, -1)


@dataclass(frozen=True, slots=True)
class Ledger:
    """
    One ledger over a cluster's connections; each call takes ``config.block_seconds`` at most.

    Raises the errors of :mod:`pyspark_pykafka.errors`.
    """

    cluster: Cluster
    config: ProducerConfig
    topic: str

    @property
    def tp(self) -> TopicPartition:
        """
        Return where its entries lie.
        """
        return TopicPartition(self.topic, PARTITION)

    def watermarks(self) -> Watermarks:
        """
        Return the log start, and the offset before which every transaction has ended.
        """
        return self._patiently(lambda _: self._fetcher(_COMMITTED).watermarks())

    def high_watermark(self) -> int:
        """
        Return the offset of the next entry.
        """
        return self._patiently(lambda _: self._fetcher(_ALL).watermarks()).visible_end

    def wait_until_stable(self, offset: int) -> None:
        """
        Return once every transaction before an offset has ended.
        """
        deadline = Deadline.after(self.config.block_seconds)
        backoff = Backoff(_LEAST_PAUSE, self.config.direct.retry_backoff_max_seconds)
        while self.watermarks()[1] < offset:
            if deadline.expired:
                msg = (
                    f"transactions of other writers stayed open in {self.tp} before offset "
                    f"{offset} for {self.config.block_seconds * 1000:.0f} ms (kafka.max.block.ms); "
                    "pykafka transactions list shows who they are"
                )
                raise TimeoutExceededError(msg)
            time.sleep(deadline.remaining(max_seconds=backoff.next_pause()))

    def read_committed(self, start: int, end: int) -> list[Entry]:
        """
        Return what was committed between two offsets.
        """
        return [entry for _, entry in self._read(start, end, _COMMITTED)]

    def read_committed_back(self, low: int, end: int, batch: int, width: int) -> list[Entry]:
        """
        Return what was committed between two offsets, as far back as it can be about a batch.

        ``width`` is how many offsets to look at first.
        """
        entries: list[Entry] = []
        while end > low and not covers_batch(entries, batch):
            start = max(low, end - width)
            entries = self.read_committed(start, end) + entries
            end, width = start, 2 * width
        return entries

    def read_all_from(self, start: int) -> EntriesWithOffsets:
        """
        Return what stands from an offset on, whether it was committed or not, and where.
        """
        return self.read_all(start, self.high_watermark())

    def read_all(self, start: int, end: int) -> EntriesWithOffsets:
        """
        Return what stands between two offsets, whether it was committed or not, and where.
        """
        return self._read(start, end, _ALL)

    def append(self, entry: Entry, outdated: Sequence[Intent] = ()) -> int:
        """
        Add an entry outside of any transaction, and return the offset of the next one.

        All replicas in sync have it then. Those that are ``outdated`` may be compacted away.
        """
        sender = Sender(self.cluster, self.config, IdempotentSession(_NO_PRODUCER_ID), {})
        gone = [(it.key.encode(), None) for it in outdated]
        sender.put(self.tp, encode_records(self.topic, [*gone, to_record(entry)]))
        sender.flush()
        return sender.offsets[self.tp] + len(gone) + 1

    def _read(self, start: int, end: int, isolation_level: str) -> list[tuple[int, Entry]]:
        if start >= end:
            return []
        wanted = OffsetRange(self.tp, start, end)
        batches = self._patiently(lambda seconds: self._fetched(wanted, isolation_level, seconds))
        return [
            (offset, from_record(value, f"{self.tp} at offset {offset}"))
            for batch in batches
            for offset, key, value in zip(*(it.to_pylist() for it in batch.columns), strict=True)
            if not _is_tombstone(key, value)
        ]

    def _patiently(self, look: Callable[[float], T]) -> T:
        """
        Look again, as long as a writer may be blocked, after whatever may pass.
        """
        return retry_ledger_read(self.tp, look, self.cluster, self.config)

    def _fetched(
        self, wanted: OffsetRange, isolation_level: str, seconds: float
    ) -> list[pa.RecordBatch]:
        try:
            settings = self._settings(isolation_level, int(seconds * 1000))
            return list(fetch_from(self.cluster, wanted, settings))
        except DataLossError as error:
            partition = PartitionFetcher(self.cluster, self.tp, _ALL)
            low, _ = partition.watermarks(Deadline.after(_LOOK_MS / 1000))
            raise missing_entries_error(wanted, low, error) from error

    def _fetcher(self, isolation_level: str) -> RetryingFetcher:
        partition = PartitionFetcher(self.cluster, self.tp, isolation_level)
        return RetryingFetcher(partition, _LOOK_MS)

    def _settings(self, isolation_level: str, timeout_ms: int) -> FetchSettings:
        return FetchSettings(
            engine="wire",
            kafka=KafkaSettings(()),
            schema=_SCHEMA,
            group_id="",
            isolation_level=isolation_level,
            poll_timeout_ms=timeout_ms,
            fail_on_data_loss=True,
            end_retries=0,
            end_retry_ms=0,
            memory_bytes=_MEMORY_BYTES,
            # A commit has its own time, kafka.max.block.ms.
            max_throttle_seconds=timeout_ms / 1000,
        )


def _is_tombstone(key: bytes | None, value: bytes | None) -> bool:
    return value is None and key is not None and key.startswith(INTENT_KEY.encode())
