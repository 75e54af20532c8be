"""
Narrows the offset ranges of a batch query according to its filters.

The ranges may stay too wide, but never become too narrow: Spark applies all filters again.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_pykafka.offsets import EARLIEST, LATEST, Offsets, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark_pykafka.source.offset_limits import OffsetSource

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

_POSITION_COLUMNS = (*TopicPartition._fields, "offset", "timestamp")

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, choices: value in choices,
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """
    A column, an operator (``=  <  <=  >  >=  in``) and a value; for ``in`` a sequence of values.
    """

    column: str
    operator: str
    value: Any


class _Bounds(NamedTuple):
    """
    The smallest and the largest matching value, both inclusive; None means no bound.
    """

    minimum: int | None = None
    maximum: int | None = None


@dataclass(frozen=True, slots=True)
class FilterPushdown:
    """
    The comparisons, all of which a record must satisfy.

    With ``max_delay_ms`` the user guarantees the order of timestamps in a partition: no record's
    timestamp is more than this number of milliseconds before the timestamp of an earlier record.
    Without this guarantee a matching record may follow any record, so timestamps narrow only the
    start.
    """

    comparisons: Sequence[Comparison] = ()
    max_delay_ms: int | None = None

    def __repr__(self) -> str:
        compared = str(self) or "no comparisons"
        return f"FilterPushdown({compared}; max_delay_ms={self.max_delay_ms})"

    def __str__(self) -> str:
        return " and ".join(map(_text, self.comparisons))

    def partitions(self, tps: Iterable[TopicPartition]) -> list[TopicPartition]:
        """
        Return the partitions that can have matching records.
        """
        partition_comparisons = [
            comparison
            for comparison in self.comparisons
            if comparison.column in TopicPartition._fields
        ]
        return (
            [
                tp
                for tp in tps
                if all(_satisfies(tp, comparison) for comparison in partition_comparisons)
            ]
            if partition_comparisons
            else [*tps]
        )

    def narrow(self, start: Offsets, end: Offsets, source: OffsetSource) -> tuple[Offsets, Offsets]:
        """
        Return start and end offsets that include all matching records, for partitions that can have
        any.

        An EARLIEST or LATEST that no comparison narrows is returned as it is.
        """
        offsets = self._bounds("offset", _integer, strict=1)
        # Bounds are rounded down to whole milliseconds, so a strict bound still includes its own
        # millisecond.
        # Invariant R21 (time filters).
        times = self._bounds("timestamp", _millis, strict=0)
        if offsets == times == _Bounds():
            return start, end
        tps = sorted(start)
        # Read before the times are looked up, so that no record appended in between is skipped.
        log_ends, log_starts = source.end_offsets(tps), source.log_start_offsets(tps)
        min_offsets = self._min_offsets(offsets.minimum, times.minimum, log_ends, source)
        max_ends = self._max_ends(offsets.maximum, times.maximum, log_ends, source)
        starts, ends = {}, {}
        for tp in sorted(log_ends.keys() & log_starts.keys()):
            given_start = log_starts[tp] if start[tp] == EARLIEST else start[tp]
            given_end = log_ends[tp] if end[tp] == LATEST else end[tp]
            new_start = max(given_start, min_offsets.get(tp, 0))
            new_end = min(given_end, max_ends.get(tp, given_end))
            is_empty_at_end = new_start == new_end == given_end
            # An empty range at the log's end is kept for records that arrive before the query runs
            # again. A range that starts beyond its end is kept for the planner, which reports it.
            if new_start < new_end or is_empty_at_end or given_start > given_end:
                starts[tp] = new_start if new_start > given_start else start[tp]
                ends[tp] = new_end if new_end < given_end else end[tp]
        return starts, ends

    def _min_offsets(
        self, offset: int | None, time: int | None, log_ends: Offsets, source: OffsetSource
    ) -> Offsets:
        minimum = 0 if offset is None else offset
        # Records without a timestamp have the time -1, which cannot be looked up: in a request,
        # negative times have other meanings.
        if time is None or time <= 0:
            return dict.fromkeys(log_ends, minimum)
        # 1 ms earlier: an index entry of the same time may follow the first record of that time.
        offsets = source.offsets_for_times(dict.fromkeys(log_ends, time - 1))
        return {tp: max(minimum, _or_default(offsets.get(tp), end)) for tp, end in log_ends.items()}

    def _max_ends(
        self, offset: int | None, time: int | None, log_ends: Offsets, source: OffsetSource
    ) -> Offsets:
        ends = {} if offset is None else dict.fromkeys(log_ends, offset + 1)
        if time is None or self.max_delay_ms is None:
            return ends
        first_later_ms = max(time + self.max_delay_ms + 1, 0)
        offsets = source.offsets_for_times(dict.fromkeys(log_ends, first_later_ms))
        return {
            tp: min(ends.get(tp, end), _or_default(offsets.get(tp), end))
            for tp, end in log_ends.items()
        }

    def _bounds(self, column: str, number: Callable[[Any], int | None], *, strict: int) -> _Bounds:
        minima: list[int] = []
        maxima: list[int] = []
        for comparison in self.comparisons:
            values = comparison.value if comparison.operator == "in" else [comparison.value]
            numbers = [n for n in map(number, values) if n is not None]
            if comparison.column != column or len(numbers) < len(values) or not numbers:
                continue
            if not comparison.operator.startswith("<"):
                minima.append(min(numbers) + strict * (comparison.operator == ">"))
            if not comparison.operator.startswith(">"):
                maxima.append(max(numbers) - strict * (comparison.operator == "<"))
        return _Bounds(max(minima, default=None), min(maxima, default=None))


def _text(comparison: Comparison) -> str:
    # Keys and values are the user's data, which has no place in a log.
    value = repr(comparison.value) if comparison.column in _POSITION_COLUMNS else "..."
    return f"{comparison.column} {comparison.operator} {value}"


def _satisfies(tp: TopicPartition, comparison: Comparison) -> bool:
    return _OPERATORS[comparison.operator](getattr(tp, comparison.column), comparison.value)


def _integer(value: object) -> int | None:
    return value if type(value) is int else None


def _millis(value: object) -> int | None:
    # Rounded down, since Kafka's timestamps are whole milliseconds.
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // _MILLISECOND
    return None


def _or_default(offset: int | None, default: int) -> int:
    return default if offset is None else offset
