"""
Reads several offset ranges at once: one request to each leader for many partitions.

Commands and metrics use it, which need a few records from each of many partitions. If a range
cannot be read in this way, the reader of a single range reads it, and finds the cause.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.contract import (
    BATCH_RECORDS,
    first_records,
    limit_records,
    report_lost_topic,
)
from pyspark_pykafka.engines.wire.consumer.leader_fetches import LeaderFetches
from pyspark_pykafka.engines.wire.consumer.topics import format_topic_id, parse_topic_id
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
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    import pyarrow as pa

    from pyspark_pykafka.engines.contract import FetchSettings
    from pyspark_pykafka.engines.wire.protocol.fetch_response import FetchResponse
    from pyspark_pykafka.offsets import TopicPartition

# Enough for a few records in small record batches; larger batches need more.
_PARTITION_BYTES = 32 * 1024
# After this many rounds in a row without progress, each range is read individually.
_MAX_FAILED_ROUNDS = 2


def fetch_many(
    ranges: Sequence[OffsetRange],
    settings: FetchSettings,
    max_records: int | None,
    fetch_one: Callable[[OffsetRange], Iterator[pa.RecordBatch]],
) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
    """
    Yield the first ``max_records`` records of each range, or all if ``max_records`` is None.

    All ranges with the same topic name are read from one topic, whose id comes from the ranges or
    from the first response. A topic that is recreated meanwhile is reported as data loss: only at
    the end if Fetch requests have topic names instead of ids.

    ``fetch_one`` reads a single range. It is called for each range that was planned with a leader
    epoch, that has limits other than offsets, that names another topic id than an earlier range
    does for the same name, or whose request failed; and for the last range if ``max_records`` is
    None. Raises as ``fetch_one`` does.
    """
    pending = [_Pending(r, r.start, max_records) for r in ranges]
    min_count = 1 if max_records is None else 0
    planned_ids: dict[str, UUID] = {}
    for r in ranges:
        if r.topic_id is not None:
            planned_ids.setdefault(r.tp.topic, parse_topic_id(r.topic_id))
    return _RangesReader(settings, fetch_one, ranges, pending, min_count, planned_ids).batches()


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

    def rest(self, topic_ids: Mapping[str, UUID]) -> OffsetRange:
        """
        Return the part of the range that has not been read, with the id of the topic read so far.
        """
        if self.needs_checks:
            return self.range
        topic_id = self.range.topic_id
        if topic_id is None and (read_id := topic_ids.get(self.range.tp.topic)) is not None:
            topic_id = format_topic_id(read_id)
        return OffsetRange(self.range.tp, self.position, self.range.end, topic_id)

    @property
    def needs_checks(self) -> bool:
        """
        Whether the range needs the checks of a single read, for its leader epoch or for limits that
        are not offsets.
        """
        return not self.range.resolved or self.range.end_epoch != NO_EPOCH

    def is_of(self, topic_ids: Mapping[str, UUID]) -> bool:
        """
        Return whether the range was planned without a topic id, or with the id in ``topic_ids``.
        """
        r = self.range
        return r.topic_id is None or parse_topic_id(r.topic_id) == topic_ids.get(r.tp.topic)


@dataclass(slots=True)
class _RangesReader:
    settings: FetchSettings
    fetch_one: Callable[[OffsetRange], Iterator[pa.RecordBatch]]
    ranges: Sequence[OffsetRange]
    pending: list[_Pending]
    #: 1 if all records are read, else 0. With 1, the last range is read individually, which sends
    #: the next fetch before it decodes a response.
    min_count: int
    planned_ids: dict[str, UUID]
    fetches: LeaderFetches = field(init=False)
    check_crcs: bool = field(init=False)
    #: The topics that were recreated, and reported.
    lost: set[str] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self.fetches = LeaderFetches(
            self.settings,
            _PARTITION_BYTES,
            fills_response=self.min_count > 0,
            topic_ids=self.planned_ids,
        )
        with borrowed_cluster(self.settings.kafka) as cluster:
            self.check_crcs = cluster.config.check_crcs

    def batches(self) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        for pending in self.pending:
            if pending.needs_checks or not pending.is_of(self.planned_ids):
                yield from self._read_one(pending)
        self._remove_done()
        failed_rounds = 0
        while len(self.pending) > self.min_count and failed_rounds < _MAX_FAILED_ROUNDS:
            has_progress = yield from self._one_round()
            failed_rounds = 0 if has_progress else failed_rounds + 1
            if self.fetches.suspected_topics - self.lost:
                self._report_recreated([p.range for p in self.pending])
            # One failed range is read individually, which waits until a leader is elected. The
            # others follow in the next round.
            failed = [p for p in self.pending if p.range.tp in self.fetches.failed]
            for pending in failed[:1]:
                yield from self._read_one(pending)
            self._remove_done()
        for pending in self.pending:
            yield from self._read_one(pending)
        self._report_recreated(self.ranges)

    def _report_recreated(self, ranges: Iterable[OffsetRange]) -> None:
        """
        Report the ranges whose topic was recreated; nothing more is read from such a topic.
        """
        recreated = self.fetches.recreated_topics() - self.lost
        for r in ranges:
            if r.tp.topic in recreated:
                report_lost_topic(r, fail=self.settings.fail_on_data_loss)
        self.lost |= recreated
        self.pending = [p for p in self.pending if p.range.tp.topic not in self.lost]

    def _one_round(self) -> Generator[tuple[OffsetRange, pa.RecordBatch], None, bool]:
        """
        Yield the records of one request to each leader; return whether the position of a range
        moved.
        """
        by_tp: dict[TopicPartition, _Pending] = {}
        for pending in self.pending:
            by_tp.setdefault(pending.range.tp, pending)
        has_progress = False
        positions = {tp: pending.position for tp, pending in by_tp.items()}
        for tp, response in self.fetches.fetch(positions):
            pending = by_tp[tp]
            for batch in self._decode(pending, response):
                yield pending.range, batch
            has_progress = has_progress or pending.position > positions[tp]
        self._remove_done()
        # Ranges whose position did not move are first in the next request.
        self.pending.sort(
            key=lambda p: by_tp[p.range.tp] is p and p.position != positions[p.range.tp]
        )
        return has_progress

    def _decode(self, pending: _Pending, response: FetchResponse) -> Iterator[pa.RecordBatch]:
        """
        Yield a response's records, and move the position; one record batch is decompressed at a
        time. If records cannot be decoded here, the partition counts as failed from that position
        on.
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
            try:
                yield from columns.batches(response.records, response.aborted_transactions)
            except (OldFormat, MalformedBatch, TimestampTooLarge):
                self.fetches.failed.add(pending.range.tp)
            yield from columns.flush()

        rows = 0
        for batch in limit_records(decoded(), pending.missing):
            rows += batch.num_rows
            yield batch
        if columns.position <= pending.position:
            self.fetches.failed.add(pending.range.tp)
        pending.position = max(pending.position, columns.position)
        if pending.missing is not None:
            pending.missing -= rows

    def _read_one(self, pending: _Pending) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        rest = pending.rest(self.fetches.topic_ids)
        for batch in first_records(self.fetch_one, rest, pending.missing):
            yield pending.range, batch
        pending.missing = 0

    def _remove_done(self) -> None:
        self.pending = [pending for pending in self.pending if not pending.is_done]
