"""
Cutting what a batch reads down to where records can be that a query's filters let through.

A cut may be too wide, never too narrow: Spark applies the filters again to what was read.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_pykafka.offsets import EARLIEST, LATEST, Offsets, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark_pykafka.source.offset_limits import OffsetSource

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)

_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
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
    A column, one of ``=  <  <=  >  >=  in``, and a value (of ``in``, a sequence of them).
    """

    column: str
    operator: str
    value: Any


class _Bounds(NamedTuple):
    """
    From the least to the greatest value that is wanted, both included; None is no bound.
    """

    least: int | None = None
    greatest: int | None = None


@dataclass(frozen=True, slots=True)
class FilterPushdown:
    """
    Comparisons that all hold for each record that is wanted.

    ``max_delay_ms`` is the user's promise that no record is stamped earlier than one before it in
    its partition by more than this. Without it, records of any time can follow one that is too
    young, so times cut the start only.
    """

    comparisons: Sequence[Comparison] = ()
    max_delay_ms: int | None = None

    def partitions(self, tps: Iterable[TopicPartition]) -> list[TopicPartition]:
        """
        Return the partitions that can have wanted records.
        """
        named = [one for one in self.comparisons if one.column in TopicPartition._fields]
        return [tp for tp in tps if all(_holds(one, tp) for one in named)] if named else [*tps]

    def narrow(
        self, starting: Offsets, ending: Offsets, source: OffsetSource
    ) -> tuple[Offsets, Offsets]:
        """
        Return the borders between which wanted records can lie, without partitions that have none.

        Borders that nothing moves stay what they are, words included.
        """
        offsets = self._bounds("offset", _whole, strict=1)
        # Within a millisecond, strictly later is not later for Kafka.
        times = self._bounds("timestamp", _millis, strict=0)
        if offsets == times == _Bounds():
            return starting, ending
        tps = sorted(starting)
        # Asked for before the times: what comes in between is younger than every time unmatched.
        latest, earliest = source.end_offsets(tps), source.log_start_offsets(tps)
        lows = self._lows(offsets.least, times.least, latest, source)
        highs = self._highs(offsets.greatest, times.greatest, latest, source)
        starts, ends = {}, {}
        for tp in sorted(latest.keys() & earliest.keys()):
            begins = earliest[tp] if starting[tp] == EARLIEST else starting[tp]
            stops = latest[tp] if ending[tp] == LATEST else ending[tp]
            low, high = max(begins, lows.get(tp, 0)), min(stops, highs.get(tp, stops))
            # A log's end stays: who runs the same query again reads what has come by then. So
            # does a start beyond its end, which is the user's mistake to hear of.
            if low < high or low == high == stops or begins > stops:
                starts[tp] = low if low > begins else starting[tp]
                ends[tp] = high if high < stops else ending[tp]
        return starts, ends

    def _lows(
        self, offset: int | None, time: int | None, latest: Offsets, source: OffsetSource
    ) -> Offsets:
        first = 0 if offset is None else offset
        if time is None:
            return dict.fromkeys(latest, first)
        # One earlier: an index entry of the same time may lie behind the first such record.
        found = source.offsets_for_times(dict.fromkeys(latest, max(time - 1, 0)))
        return {tp: max(first, _or(found.get(tp), end)) for tp, end in latest.items()}

    def _highs(
        self, offset: int | None, time: int | None, latest: Offsets, source: OffsetSource
    ) -> Offsets:
        ends = {} if offset is None else dict.fromkeys(latest, offset + 1)
        if time is None or self.max_delay_ms is None:
            return ends
        found = source.offsets_for_times(dict.fromkeys(latest, time + self.max_delay_ms + 1))
        return {tp: min(ends.get(tp, end), _or(found.get(tp), end)) for tp, end in latest.items()}

    def _bounds(self, column: str, number: Callable[[Any], int | None], *, strict: int) -> _Bounds:
        least: list[int] = []
        greatest: list[int] = []
        for one in self.comparisons:
            values = one.value if one.operator == "in" else [one.value]
            numbers = [n for n in map(number, values) if n is not None]
            if one.column != column or len(numbers) < len(values) or not numbers:
                continue
            if not one.operator.startswith("<"):
                least.append(min(numbers) + strict * (one.operator == ">"))
            if not one.operator.startswith(">"):
                greatest.append(max(numbers) - strict * (one.operator == "<"))
        return _Bounds(max(least, default=None), min(greatest, default=None))


def _holds(one: Comparison, tp: TopicPartition) -> bool:
    return _HOLDS[one.operator](getattr(tp, one.column), one.value)


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


def _millis(value: object) -> int | None:
    # Rounded down, as Kafka's times are whole milliseconds.
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // _MILLISECOND
    return None


def _or(found: int | None, otherwise: int) -> int:
    return otherwise if found is None else found
