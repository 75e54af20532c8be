"""
What entered a micro-batch, as the query's progress tells of it: the ranges that its offsets bound.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.errors import OffsetsError
from pyspark_pykafka.offsets import StreamOffset
from pyspark_pykafka.source.planner import (
    SplitPolicy,
    new_partitions,
    plan_stream,
    starting_new_partitions_at,
)
from pyspark_pykafka.source.subscription import matches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_pykafka.offsets import OffsetRange
    from pyspark_pykafka.options import SourceOptions

# The JVM connector's documents have the form of ours.
_OF_OTHERS = "KafkaV"


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """
    What Spark tells of one source of a query after a micro-batch.

    ``start`` and ``end`` are offset documents as JSON, if there are any; ``rows`` is how many it
    delivered.
    """

    description: str
    start: str | None
    end: str | None
    rows: int


def source_of(sources: Iterable[SourceProgress], options: SourceOptions) -> SourceProgress:
    """
    Return the one source of a query that has these options.

    Raises :class:`OffsetsError` if none can have them, or more than one.
    """
    found = [source for source in sources if _fits(source, options)]
    if len(found) == 1:
        return found[0]
    how_many = f"{len(found)} sources" if found else "no source"
    msg = (
        f"the query has {how_many} that may be the one with the auditor's options; give the "
        "auditor the options of the readStream that it audits, or none, if the query reads the "
        "same topics twice"
    )
    raise OffsetsError("UNKNOWN_SOURCE", msg)


def ranges_of(source: SourceProgress, options: SourceOptions) -> tuple[OffsetRange, ...]:
    """
    Return the ranges that hold all that a source read in a micro-batch.

    A partition that appeared since the batch before begins at 0, where its first records may have
    aged out since. Raises :class:`OffsetsError` if nothing tells where the batch started.
    """
    until = StreamOffset.from_json(_document(source.end) or {})
    start = _document(source.start)
    begin = until.initial if start is None else StreamOffset.from_json(start)
    if begin is None:
        msg = (
            "Spark does not tell where the query's first batch started, and its end offset does "
            "not, either, since another connector or an older version planned it; later batches "
            "are not affected"
        )
        raise OffsetsError("UNKNOWN_START_OFFSET", msg)
    begin = starting_new_partitions_at(begin, until, options.new_partition_offsets)
    first = dict.fromkeys(new_partitions(begin, until), 0)
    asked_for = partial(matches, options.strategy)
    return plan_stream(begin, until, first, SplitPolicy(), asked_for).ranges


def _fits(source: SourceProgress, options: SourceOptions) -> bool:
    if source.description.startswith(_OF_OTHERS):
        return False
    try:
        offsets = StreamOffset.from_json(_document(source.end) or {}).offsets
    except OffsetsError:
        return False
    return bool(offsets) and all(matches(options.strategy, tp) for tp in offsets)


def _document(text: str | None) -> dict[str, Any] | None:
    """
    Return the map that a text is, None for all else: PySpark's word for no offset is "None".
    """
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
