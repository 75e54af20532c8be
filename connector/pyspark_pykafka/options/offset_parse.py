"""
Parses the options for the start and the end of a read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.offsets import EARLIEST, TopicPartition
from pyspark_pykafka.options import table
from pyspark_pykafka.options.offset_values import (
    Committed,
    Earliest,
    GlobalTimestamp,
    LastOffsets,
    Latest,
    NoMatch,
    OffsetLimit,
    Position,
    SpecificOffsets,
    SpecificTimestamps,
    TimeAgo,
)

if TYPE_CHECKING:
    from pyspark_pykafka.options.option_reader import OptionReader
    from pyspark_pykafka.options.values import SourceOptions


def read_start(reader: OptionReader) -> OffsetLimit:
    """
    Return where a read starts.
    """
    no_match: NoMatch = "latest" if reader.get(table.NO_MATCH_STRATEGY) == "latest" else "error"
    # All three are parsed, so that mistakes in overridden options are reported too.
    everywhere = reader.find(table.STARTING_TIMESTAMP)
    by_partition = reader.find(table.STARTING_OFFSETS_BY_TIMESTAMP)
    offsets = reader.get(table.STARTING_OFFSETS)
    return _by_precedence(everywhere, by_partition, offsets, no_match)


def read_end(reader: OptionReader) -> OffsetLimit:
    """
    Return where a read ends.
    """
    everywhere = reader.find(table.ENDING_TIMESTAMP)
    by_partition = reader.find(table.ENDING_OFFSETS_BY_TIMESTAMP)
    return _by_precedence(everywhere, by_partition, reader.get(table.ENDING_OFFSETS), "latest")


def _by_precedence(
    everywhere: int | None,
    by_partition: tuple[tuple[TopicPartition, int], ...] | None,
    offsets: Committed | Earliest | Latest | SpecificOffsets | Position,
    no_match: NoMatch,
) -> OffsetLimit:
    if everywhere is not None:
        return GlobalTimestamp(everywhere, no_match)
    return offsets if by_partition is None else SpecificTimestamps(by_partition, no_match)


def check_end(reader: OptionReader, source: SourceOptions, reason: str) -> None:
    """
    Report each end that is ``earliest`` as a mistake; ``reason`` is the message's explanation.
    """
    if isinstance(source.ending_offsets, Earliest):
        reader.mistakes.append(f"endingOffsets is 'earliest'; {reason}")
    for where in partitions_at(source.ending_offsets, EARLIEST):
        reader.mistakes.append(f"endingOffsets for {where} is {EARLIEST}; {reason}")


def moves_with_time(limit: OffsetLimit) -> bool:
    """
    Return whether a limit moves with time: it is relative to now, or counts back from a log's end.
    """
    positions: list[object] = [limit]
    if isinstance(limit, SpecificOffsets):
        positions = [*dict(limit.offsets).values(), *dict(limit.topics).values()]
    return any(isinstance(position, TimeAgo | LastOffsets) for position in positions)


def partitions_at(limit: OffsetLimit, sentinel: int) -> list[str]:
    """
    Return the names of the partitions and topics whose limit is ``sentinel``: EARLIEST or LATEST.
    """
    if not isinstance(limit, SpecificOffsets):
        return []
    tps = [str(tp) for tp, offset in limit.offsets if offset == sentinel]
    return tps + [topic for topic, offset in limit.topics if offset == sentinel]
