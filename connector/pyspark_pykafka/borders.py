"""
Turning the user's start and end (words, offsets, times) into offsets of the assigned partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyspark_pykafka.errors import OffsetsError
from pyspark_pykafka.offsets import EARLIEST, LATEST, Offsets, TopicPartition
from pyspark_pykafka.options import (
    Earliest,
    GlobalTimestamp,
    Latest,
    SpecificOffsets,
    SpecificTimestamps,
)
from pyspark_pykafka.planner import match_assigned

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Limit = Earliest | Latest | SpecificOffsets | SpecificTimestamps | GlobalTimestamp

_OFFSET_CONDITION = "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"
_TIME_CONDITION = "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED"


class OffsetSource(Protocol):
    """
    Whoever knows the offsets of partitions; :class:`~pyspark_pykafka.broker.Broker` does.
    """

    def earliest(self, tps: Iterable[TopicPartition]) -> Offsets:
        """
        Return the first offsets that are still held.
        """

    def latest(self, tps: Iterable[TopicPartition]) -> Offsets:
        """
        Return the offsets that the next records will get.
        """

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """
        Return the first offsets at or after times in epoch ms; None where there is none.
        """


def starting_border(limit: Limit, tps: Sequence[TopicPartition], source: OffsetSource) -> Offsets:
    """
    Return where reading starts; EARLIEST and LATEST stay words.

    Raises :class:`OffsetsError` when partitions are left out, or when no record is as young as a
    time and the strategy is ``error``.
    """
    border = _border(limit, tps, source)
    unmatched = [tp for tp, offset in border.items() if offset is None]
    if unmatched and _strategy(limit) == "error":
        tp = unmatched[0]
        msg = (
            f"No offset matched from request of topic-partition {tp} and timestamp "
            f"{_time(limit, tp)}: it has no record as young. Set "
            "startingOffsetsByTimestampStrategy to latest to start such partitions at their end"
        )
        raise OffsetsError("NO_OFFSET_MATCHED_FROM_TIMESTAMP", msg)
    known = {tp: offset for tp, offset in border.items() if offset is not None}
    return {**known, **source.latest(unmatched)} if unmatched else known


def ending_border(limit: Limit, tps: Sequence[TopicPartition], source: OffsetSource) -> Offsets:
    """
    Return where reading ends; a time that no record reaches means LATEST, as in the JVM connector.
    """
    border = _border(limit, tps, source)
    return {tp: LATEST if offset is None else offset for tp, offset in border.items()}


def follows_the_end(limit: Limit) -> bool:
    """
    Whether the same words, asked again later, can mean a later offset because records came.
    """
    if isinstance(limit, SpecificOffsets):
        return LATEST in dict(limit.offsets).values()
    return isinstance(limit, Latest) or _strategy(limit) == "latest"


def resolve_words(border: Offsets, source: OffsetSource) -> Offsets:
    """
    Replace EARLIEST and LATEST by the offsets that they stand for now.
    """
    earliest = source.earliest([tp for tp, offset in border.items() if offset == EARLIEST])
    latest = source.latest([tp for tp, offset in border.items() if offset == LATEST])
    return {**border, **earliest, **latest}


def _border(
    limit: Limit, tps: Sequence[TopicPartition], source: OffsetSource
) -> dict[TopicPartition, int | None]:
    if isinstance(limit, Earliest):
        return dict.fromkeys(tps, EARLIEST)
    if isinstance(limit, Latest):
        return dict.fromkeys(tps, LATEST)
    if isinstance(limit, SpecificOffsets):
        return {**match_assigned(dict(limit.offsets), tps, _OFFSET_CONDITION)}
    if isinstance(limit, SpecificTimestamps):
        return source.at_times(match_assigned(dict(limit.timestamps), tps, _TIME_CONDITION))
    return source.at_times(dict.fromkeys(tps, limit.timestamp_ms))


def _strategy(limit: Limit) -> str:
    return limit.strategy if isinstance(limit, GlobalTimestamp | SpecificTimestamps) else "error"


def _time(limit: Limit, tp: TopicPartition) -> int | None:
    if isinstance(limit, GlobalTimestamp):
        return limit.timestamp_ms
    return dict(limit.timestamps).get(tp) if isinstance(limit, SpecificTimestamps) else None
