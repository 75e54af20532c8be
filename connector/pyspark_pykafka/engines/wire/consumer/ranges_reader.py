"""
Reads several offset ranges at once: one request to each leader for many partitions.

For commands and metrics, which need few records of each of many partitions. A range with a problem
is read by the reader of one range, which knows what an odd response means.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.contract import BATCH_RECORDS, first_records, limit_records
from pyspark_pykafka.engines.wire.consumer.leader_fetches import LeaderFetches
from pyspark_pykafka.engines.wire.network.cluster_pool import borrowed_cluster
from pyspark_pykafka.engines.wire.records._decoder import (
    MalformedBatch,
    OldFormat,
    TimestampTooLarge,
)
from pyspark_pykafka.engines.wire.records.arrow_decoder import ArrowDecoder
from pyspark_pykafka.engines.wire.records.compression import Decompressor
from pyspark_pykafka.offsets import NO_EPOCH, OffsetRange

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    import pyarrow as pa

    from pyspark_pykafka.engines.contract import FetchSettings
    from pyspark_pykafka.engines.wire.protocol.fetch_response import FetchResponse
    from pyspark_pykafka.offsets import TopicPartition

# A few records of a partition with small record batches; larger ones take more.
_PARTITION_BYTES = 32 * 1024
# So many requests in a row that bring no records end the requests for many partitions.
_MAX_FAILED_ROUNDS = 2


def fetch_many(
    ranges: Sequence[OffsetRange],
    settings: FetchSettings,
    max_records: int | None,
    fetch_one: Callable[[OffsetRange], Iterator[pa.RecordBatch]],
) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
    """
    Yield the first ``max_records`` records of each range, or all of them if it is None.

    ``fetch_one`` reads one range: one planned with a topic id or a leader epoch, one whose limits
    are not offsets, the last one if all its records are read, and one whose request failed.
    Raises as it does.
    """
    pending = [_Pending(r, r.start, max_records) for r in ranges]
    min_count = 1 if max_records is None else 0
    return _RangesReader(settings, fetch_one, pending, min_count).batches()


@dataclass(slots=True)
class _Pending:
    """
    A range, the next offset to read, and the number of records still to return.
    """

    range: OffsetRange
    position: int
    missing: int | None

    @property
    def is_done(self) -> bool:
        return self.position >= self.range.end or (self.missing is not None and self.missing <= 0)

    @property
    def rest(self) -> OffsetRange:
        return OffsetRange(self.range.tp, self.position, self.range.end)

    @property
    def needs_checks(self) -> bool:
        """
        Whether each response must be checked against what the range was planned with.
        """
        r = self.range
        return not r.resolved or r.topic_id is not None or r.end_epoch != NO_EPOCH


@dataclass(slots=True)
class _RangesReader:
    settings: FetchSettings
    fetch_one: Callable[[OffsetRange], Iterator[pa.RecordBatch]]
    pending: list[_Pending]
    #: The last range is read individually if all its records are read: ahead of their decoding.
    min_count: int
    fetches: LeaderFetches = field(init=False)
    check_crcs: bool = field(init=False)

    def __post_init__(self) -> None:
        self.fetches = LeaderFetches(
            self.settings, _PARTITION_BYTES, fills_response=self.min_count > 0
        )
        with borrowed_cluster(self.settings.kafka) as cluster:
            self.check_crcs = cluster.config.check_crcs

    def batches(self) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        for pending in [pending for pending in self.pending if pending.needs_checks]:
            yield from self._read_one(pending)
        self._remove_done()
        failed_rounds = 0
        while len(self.pending) > self.min_count and failed_rounds < _MAX_FAILED_ROUNDS:
            has_progress = yield from self._one_round()
            failed_rounds = 0 if has_progress else failed_rounds + 1
            # One range is read individually: that waits for a leader which is being elected. Then
            # the others follow.
            failed = [p for p in self.pending if p.range.tp in self.fetches.failed]
            for pending in failed[:1]:
                yield from self._read_one(pending)
            self._remove_done()
        for pending in self.pending:
            yield from self._read_one(pending)

    def _one_round(self) -> Generator[tuple[OffsetRange, pa.RecordBatch], None, bool]:
        """
        Yield the records of one request to each leader; return whether there are any.
        """
        by_tp: dict[TopicPartition, _Pending] = {}
        for pending in self.pending:
            by_tp.setdefault(pending.range.tp, pending)
        has_progress = False
        positions = {tp: pending.position for tp, pending in by_tp.items()}
        for tp, response in self.fetches.fetch(positions):
            pending = by_tp[tp]
            batches = self._decode(pending, response)
            if batches is None:
                self.fetches.failed.add(tp)
                continue
            has_progress = True
            for batch in batches:
                yield pending.range, batch
        self._remove_done()
        # Those without a response are first in the next request.
        self.pending.sort(
            key=lambda p: by_tp[p.range.tp] is p and p.position != positions[p.range.tp]
        )
        return has_progress

    def _decode(self, pending: _Pending, response: FetchResponse) -> list[pa.RecordBatch] | None:
        """
        Return a response's records, and move the position; None if it cannot be decoded here.
        """
        missing = BATCH_RECORDS if pending.missing is None else pending.missing
        columns = ArrowDecoder.of_range(
            pending.range.tp,
            pending.position,
            pending.range.end,
            self.settings.schema,
            Decompressor(self.settings.memory_bytes),
            max_records=min(missing, BATCH_RECORDS),
            max_bytes=self.settings.batch_bytes,
            check_crcs=self.check_crcs,
        )

        def decoded() -> Iterator[pa.RecordBatch]:
            yield from columns.batches(response.records, response.aborted_transactions)
            yield from columns.flush()

        try:
            batches = list(limit_records(decoded(), pending.missing))
        except (OldFormat, MalformedBatch, TimestampTooLarge):
            return None
        if columns.position <= pending.position:
            return None
        pending.position = columns.position
        if pending.missing is not None:
            pending.missing -= sum(batch.num_rows for batch in batches)
        return batches

    def _read_one(self, pending: _Pending) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        offsets = pending.range if pending.needs_checks else pending.rest
        for batch in first_records(self.fetch_one, offsets, pending.missing):
            yield pending.range, batch
        pending.missing = 0

    def _remove_done(self) -> None:
        self.pending = [pending for pending in self.pending if not pending.is_done]
