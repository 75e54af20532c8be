"""
Reads the latest record of each key of a partition: the option ``latestPerKey``.

A range is read twice. The first pass reads the keys alone, and finds the offset of each key's
latest record. The second pass reads the records at these offsets. So a task's memory grows with the
number of distinct keys, and not with the size of their values.

Both passes read the same log: a topic that is recreated in between, and a log that is truncated,
are data loss.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_pykafka.engines.contract import (
    BATCH_RECORDS,
    Watermarks,
    resolve_range,
    with_end_not_before_start,
)
from pyspark_pykafka.engines.selection import fetch, metadata_backend
from pyspark_pykafka.errors import OffsetsError, RecordError, UnknownTopicError
from pyspark_pykafka.offsets import LATEST, NO_EPOCH
from pyspark_pykafka.options import Assign
from pyspark_pykafka.retry import RetryPolicy
from pyspark_pykafka.schema import SOURCE_TYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark_pykafka.engines.contract import FetchSettings
    from pyspark_pykafka.engines.metadata import MetadataClient
    from pyspark_pykafka.offsets import OffsetRange, TopicPartition

logger = logging.getLogger("pyspark_pykafka")

KEY_REQUIRED = "LATEST_PER_KEY.RECORD_WITHOUT_KEY"

_KEYS = pa.schema([pa.field(name, SOURCE_TYPES[name]) for name in ("key", "offset")])
# The columns that select a record: its offset, and its value, which is null in a tombstone.
_DECIDING = ("offset", "value")

# Keys are grouped when the pending keys have this many bytes, and at least as many bytes as the
# grouped keys.
_MIN_PENDING_BYTES = 16 * 1024 * 1024


def range_in_log(requested: OffsetRange, settings: FetchSettings) -> OffsetRange:
    """
    Return the range with offsets for EARLIEST and LATEST, the topic's id, and the leader epoch in
    which the log was seen up to the range's end.

    Returns ``requested`` if the partition does not exist, or if its topic is no longer the planned
    one: the engine reports that. Without records up to LATEST, the range keeps its limits, but has
    the topic's id. Raises as :func:`resolve_range` does.
    """
    tp, client = requested.tp, _metadata_client(settings)
    try:
        # The topic id is read before the offsets: if the topic is recreated in between, the range
        # has the former id, and no record of the new topic is read.
        topic_id = client.assignment(Assign((tp,))).topic_ids.get(tp.topic)
        if requested.topic_id not in {None, topic_id}:
            return requested
        starts, ends = client.log_start_offsets([tp]), client.log_ends([tp])
    except UnknownTopicError:
        return requested
    if tp not in starts or tp not in ends.offsets:
        return requested
    watermarks = Watermarks(starts[tp], ends.offsets[tp])
    watermarks = with_end_not_before_start(
        requested, watermarks, lambda: client.high_watermarks([tp]).offsets.get(tp, -1)
    )
    epoch, fail = ends.epochs.get(tp, NO_EPOCH), settings.fail_on_data_loss
    try:
        resolved = resolve_range(requested, watermarks, epoch, fail_on_data_loss=fail)
    except OffsetsError:
        if topic_id is None:
            raise
        seems_lost = True
    else:
        seems_lost = requested.end == LATEST and resolved.size == 0 and topic_id is not None
    # These may be the offsets of another topic with this name, so the engine compares the ids.
    return replace(requested if seems_lost else resolved, topic_id=topic_id)


def _metadata_client(settings: FetchSettings) -> MetadataClient:
    # Imported here, since a worker that reads without latestPerKey does not need it.
    from pyspark_pykafka.engines.metadata import MetadataClient

    backend = metadata_backend(settings.kafka, settings.isolation_level, settings.engine)
    return MetadataClient(
        backend, RetryPolicy(max(settings.end_retries, 1), settings.end_retry_ms / 1000)
    )


def latest_records(
    requested: OffsetRange,
    settings: FetchSettings,
    read: Callable[[OffsetRange, FetchSettings], Iterator[pa.RecordBatch]] = fetch,
    locate: Callable[[OffsetRange, FetchSettings], OffsetRange] = range_in_log,
) -> Iterator[pa.RecordBatch]:
    """
    Yield the latest record of each key in a range, in the order of offsets, without tombstones.

    The batches have the columns of ``settings.schema``. Raises :class:`RecordError` for a record
    without a key, and whatever ``read`` and ``locate`` raise.
    """
    located = locate(requested, settings)
    latest = LatestPerKey(located.tp)
    for batch in read(located, replace(settings, schema=_KEYS)):
        latest.add(batch)
    offsets = latest.offsets()
    if not len(offsets):
        return
    bounds = replace(
        located,
        start=offsets[0].as_py(),
        end=offsets[-1].as_py() + 1,
        # The log up to the range's end was seen in one leader epoch.
        start_epoch=located.end_epoch,
    )
    batches = read(bounds, replace(settings, schema=_with_deciding_columns(settings.schema)))
    yield from _joined(_Selection(bounds, offsets).of(batches), settings)


class LatestPerKey:
    """
    The offset of the latest record of each key, among the batches of a partition so far.
    """

    def __init__(self, tp: TopicPartition, min_pending_bytes: int = _MIN_PENDING_BYTES) -> None:
        self._tp = tp
        self._min_pending_bytes = min_pending_bytes
        self._grouped: pa.Table | None = None
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """
        Add a batch with the columns ``key`` and ``offset``.

        Raises :class:`RecordError` for a record without a key.
        """
        keys, offsets = batch.column("key"), batch.column("offset")
        if keys.null_count:
            raise self._null_key_error(offsets[pc.index(pc.is_null(keys), True).as_py()].as_py())
        # All keys of a partition may have more bytes than 32-bit offsets can count.
        table = pa.table({"key": keys.cast(pa.large_binary()), "offset": offsets})
        self._pending.append(table)
        self._pending_bytes += table.nbytes
        grouped_bytes = 0 if self._grouped is None else self._grouped.nbytes
        # At least half of the bytes of each grouping are new, so all groupings together process at
        # most twice the bytes of the keys.
        if self._pending_bytes >= max(self._min_pending_bytes, grouped_bytes):
            self._group()

    def offsets(self) -> pa.Int64Array:
        """
        Return the offsets of the latest records in ascending order, and forget the keys.
        """
        self._group()
        grouped, self._grouped = self._grouped, None
        if grouped is None:
            return pa.array([], pa.int64())
        column = grouped.column("offset").combine_chunks()
        return column.take(pc.sort_indices(column))

    def _group(self) -> None:
        tables = [*self._pending] if self._grouped is None else [self._grouped, *self._pending]
        if not self._pending:
            return
        self._pending, self._pending_bytes, self._grouped = [], 0, None
        # One thread, because a task has one core.
        groups = pa.concat_tables(tables).group_by("key", use_threads=False)
        latest = groups.aggregate([("offset", "max")])
        self._grouped = pa.table({"key": latest["key"], "offset": latest["offset_max"]})

    def _null_key_error(self, offset: int) -> RecordError:
        text = (
            f"the record at offset {offset} of {self._tp} has no key, but latestPerKey needs one "
            "in each record; read without latestPerKey, and choose rows in the query"
        )
        return RecordError(KEY_REQUIRED, text)


class _Selection:
    """
    Selects the records at given offsets of a partition; the offsets are in ascending order.
    """

    def __init__(self, requested: OffsetRange, offsets: pa.Int64Array) -> None:
        self._requested = requested
        self._offsets = offsets
        self._view = memoryview(offsets.buffers()[1]).cast("q")[: len(offsets)]

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """
        Yield the records of the batches at these offsets, without tombstones.
        """
        start, missing = 0, 0
        for batch in batches:
            if not batch.num_rows:
                continue
            column = batch.column("offset")
            end = bisect_right(self._view, column[-1].as_py(), start)
            is_latest = pc.is_in(column, value_set=self._offsets.slice(start, end - start))
            missing += end - start - pc.sum(is_latest).as_py()
            start = end
            yield batch.filter(pc.and_(is_latest, batch.column("value").is_valid()))
        missing += len(self._offsets) - start
        if missing:
            logger.warning(
                "latestPerKey: %d of the %d latest records of %s were removed from the log in the "
                "meantime (by compaction or retention), so their keys have no row. Tombstones of "
                "deleted keys may be among them. Compaction removes any other record only if a "
                "newer record of its key follows; here that record lies beyond the end of the "
                "range",
                missing,
                len(self._offsets),
                self._requested,
            )


def _with_deciding_columns(schema: pa.Schema) -> pa.Schema:
    missing = [name for name in _DECIDING if name not in schema.names]
    return pa.schema([*schema, *(pa.field(name, SOURCE_TYPES[name]) for name in missing)])


def _joined(batches: Iterable[pa.RecordBatch], settings: FetchSettings) -> Iterator[pa.RecordBatch]:
    """
    Yield batches of about the usual size, with the columns of the settings.
    """
    parts: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        part = batch.select(settings.schema.names)
        if parts and (
            rows + part.num_rows > BATCH_RECORDS or size + part.nbytes > settings.batch_bytes
        ):
            yield pa.concat_batches(parts)
            parts, rows, size = [], 0, 0
        if part.num_rows:
            parts.append(part)
            rows += part.num_rows
            size += part.nbytes
    if parts:
        yield pa.concat_batches(parts)
