"""
The ledger: a topic in which exactly-once streams record what they have committed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from pyspark_pykafka.engines.contract import FetchSettings, Watermarks
from pyspark_pykafka.engines.wire.consumer.partition_fetcher import PartitionFetcher
from pyspark_pykafka.engines.wire.consumer.range_reader import fetch_from
from pyspark_pykafka.engines.wire.consumer.retrying_fetcher import RetryingFetcher
from pyspark_pykafka.engines.wire.producer.producer_id import request_producer_id
from pyspark_pykafka.engines.wire.producer.sender import Sender
from pyspark_pykafka.engines.wire.producer.session import IdempotentSession
from pyspark_pykafka.engines.wire.records.arrow_encoder import encode_records
from pyspark_pykafka.engines.wire.records.record_batch import ProducerIdAndEpoch
from pyspark_pykafka.errors import ConcurrentWriteError, DataLossError, TimeoutExceededError
from pyspark_pykafka.offsets import OffsetRange, TopicPartition
from pyspark_pykafka.retry import Backoff
from pyspark_pykafka.schema import SOURCE_TYPES
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.sink.command_entries import without_ineffective_commands
from pyspark_pykafka.sink.ledger_entries import (
    INTENT_KEY,
    ReadBarrier,
    from_record,
    ledger_topic,
    to_record,
)
from pyspark_pykafka.sink.ledger_retries import missing_entries_error, retry_ledger_read
from pyspark_pykafka.sink.replay import covers_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
    from pyspark_pykafka.settings.wire_config import ProducerConfig
    from pyspark_pykafka.sink.ledger_entries import (
        Completion,
        EntriesWithOffsets,
        Entry,
        Intent,
        Release,
    )

T = TypeVar("T")

#: A ledger has one partition: the order of its entries decides between concurrent writes.
PARTITION = 0

_COMMITTED, _ALL = "read_committed", "read_uncommitted"
_SCHEMA = pa.schema([(name, SOURCE_TYPES[name]) for name in ("offset", "key", "value")])
_MEMORY_BYTES = 64 * 2**20
_INITIAL_BACKOFF_SECONDS = 0.005
# The timeout of one ListOffsets request before a retry.
_LIST_OFFSETS_MS = 5_000
# The time between two searches for transactions that nobody else will end.
_UNBLOCK_SECONDS = 5.0

# The entries of drivers have no sequence numbers: a duplicate entry changes nothing.
_NO_PRODUCER_ID = ProducerIdAndEpoch(-1, -1)


@dataclass(frozen=True, slots=True)
class Ledger:
    """
    Reads the ledger in a topic, and appends to it.

    A read takes at most ``config.block_seconds``, and an append the producer's delivery timeout.

    Raises the errors of :mod:`pyspark_pykafka.errors`.
    """

    cluster: Cluster
    config: ProducerConfig
    topic: str

    @property
    def tp(self) -> TopicPartition:
        """
        The ledger's partition.
        """
        return TopicPartition(self.topic, PARTITION)

    def watermarks(self) -> Watermarks:
        """
        Return the log start and the last stable offset, before which every transaction has ended.
        """
        return self._retry(lambda _: self._fetcher(_COMMITTED).watermarks())

    def high_watermark(self) -> int:
        """
        Return the high watermark: the offset of the next entry.
        """
        return self._retry(lambda _: self._fetcher(_ALL).watermarks()).visible_end

    def wait_until_stable(self, offset: int, unblock: Callable[[], None] | None = None) -> None:
        """
        Return once every transaction before an offset has ended.

        ``unblock`` ends transactions that nobody else will end. It is called again every few
        seconds, since a broker that did not answer in time may have such transactions.
        """
        unblock_at = self.cluster.new_deadline(_UNBLOCK_SECONDS)
        deadline = self.cluster.new_deadline(self.config.block_seconds)
        backoff = Backoff(_INITIAL_BACKOFF_SECONDS, self.config.wire.retry_backoff_max_seconds)
        while self.watermarks().visible_end < offset:
            if deadline.expired:
                msg = (
                    f"transactions of other writers stayed open in {self.tp} before offset "
                    f"{offset} for {self.config.block_seconds * 1000:.0f} ms (kafka.max.block.ms); "
                    "pykafka transactions list shows them"
                )
                raise TimeoutExceededError(msg)
            if unblock is not None and unblock_at.expired:
                unblock()
                unblock_at = self.cluster.new_deadline(_UNBLOCK_SECONDS)
            deadline.pause(backoff.next_pause())

    def read_committed(self, start: int, end: int) -> EntriesWithOffsets:
        """
        Return the committed entries in ``[start, end)``.
        """
        return self._read(start, end, _COMMITTED)

    def read_committed_back(
        self, start: int, end: int, batch: int, window: int
    ) -> EntriesWithOffsets:
        """
        Return committed entries before ``end``, back to the first that can concern the batch.

        Reads back to ``start`` at most: first ``window`` offsets, then twice as many each time.
        """
        entries: EntriesWithOffsets = []
        while end > start and not covers_batch(entries, batch, end):
            window_start = max(start, end - window)
            entries = [*self.read_committed(window_start, end), *entries]
            end, window = window_start, 2 * window
        return entries

    def read_all_from(self, start: int) -> EntriesWithOffsets:
        """
        Return all entries from an offset on, committed or not, as far as the leader reports them.
        """
        return self.read_all(start, self.high_watermark())

    def read_up_to_barrier(self, start: int) -> EntriesWithOffsets:
        """
        Return all entries from an offset on, up to a barrier that is appended now.

        Only this proves that an entry is absent: a former leader of the partition may still report
        an old high watermark, but accepts no append.
        """
        # Invariant I7 (proof of absence).
        return self.read_all(start, self.append(ReadBarrier()))

    def read_all(self, start: int, end: int) -> EntriesWithOffsets:
        """
        Return all entries in ``[start, end)``, committed or not.
        """
        return self._read(start, end, _ALL)

    def append(self, entry: Entry, outdated: Sequence[Intent] = ()) -> int:
        """
        Append an entry outside of any transaction; return the offset after it.

        All in-sync replicas have the entry afterwards. The ``outdated`` intents get tombstones.
        """
        tombstones = [(intent.key.encode(), None) for intent in outdated]
        return self._append([*tombstones, to_record(entry)], _NO_PRODUCER_ID)

    def append_command(self, entry: Release | Completion, command: str) -> None:
        """
        Append the entry of a command; ``command`` is its name, such as "release".

        Raises :class:`ConcurrentWriteError` if a driver has appended an intent after
        ``entry.ledger_end``: then the entry does not count.
        """
        end = self.append_once(entry)
        counting = without_ineffective_commands(self.read_all(entry.ledger_end, end))
        if any(counted == entry for _, counted in counting):
            return
        msg = (
            f"pykafka transactions {command} had no effect: meanwhile a driver decided to commit a "
            f"micro-batch, as the ledger {self.tp} shows; stop the query, and run the command again"
        )
        raise ConcurrentWriteError("EXACTLY_ONCE_CONCURRENT_WRITE", msg)

    def append_once(self, entry: Entry) -> int:
        """
        Append an entry as :meth:`append` does, but with a producer id. So brokers drop a late copy,
        which compaction would keep instead of the first one.
        """
        producer_id = request_producer_id(self.cluster, self.config)
        return self._append([to_record(entry)], producer_id)

    def _append(
        self, records: Sequence[tuple[bytes, bytes | None]], producer: ProducerIdAndEpoch
    ) -> int:
        sender = Sender(self.cluster, self.config, IdempotentSession(producer), {})
        try:
            sender.put(self.tp, encode_records(self.topic, records))
            sender.flush()
        except BaseException:
            # The caller may continue to use this cluster.
            sender.drop_connections()
            raise
        return sender.offsets[self.tp] + len(records)

    def _read(self, start: int, end: int, isolation_level: str) -> list[tuple[int, Entry]]:
        if start >= end:
            return []
        requested = OffsetRange(self.tp, start, end)
        batches = self._retry(lambda seconds: self._fetch(requested, isolation_level, seconds))
        return [
            (offset, from_record(value, f"{self.tp} at offset {offset}"))
            for batch in batches
            for offset, key, value in zip(
                *(column.to_pylist() for column in batch.columns), strict=True
            )
            if not _is_tombstone(key, value)
        ]

    def _retry(self, read: Callable[[float], T]) -> T:
        return retry_ledger_read(self.tp, read, self.cluster, self.config)

    def _fetch(
        self, requested: OffsetRange, isolation_level: str, seconds: float
    ) -> list[pa.RecordBatch]:
        try:
            settings = self._settings(isolation_level, int(seconds * 1000))
            return list(fetch_from(self.cluster, requested, settings))
        except DataLossError as error:
            partition = PartitionFetcher(self.cluster, self.tp, _ALL)
            log_start, _ = partition.watermarks(self.cluster.new_deadline(_LIST_OFFSETS_MS / 1000))
            raise missing_entries_error(requested, log_start, error) from error

    def _fetcher(self, isolation_level: str) -> RetryingFetcher:
        partition = PartitionFetcher(self.cluster, self.tp, isolation_level)
        return RetryingFetcher(partition, _LIST_OFFSETS_MS)

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
            # Throttling does not extend a commit beyond kafka.max.block.ms.
            max_throttle_seconds=timeout_ms / 1000,
        )


def _is_tombstone(key: bytes | None, value: bytes | None) -> bool:
    return value is None and key is not None and key.startswith(INTENT_KEY.encode())


def open_ledger(transactions: Transactions, prefix: str) -> Ledger:
    """
    Return the ledger of a transactional-id prefix.
    """
    return Ledger(transactions.cluster, transactions.config, ledger_topic(prefix))
