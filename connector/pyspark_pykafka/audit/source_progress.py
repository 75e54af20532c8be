"""
The offset ranges that a source read in a micro-batch, from the query's progress.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_pykafka.errors import OffsetsError
from pyspark_pykafka.offsets import Document, StreamOffset, offset_document
from pyspark_pykafka.source.planner import (
    SplitPolicy,
    new_partitions,
    plan_stream,
    with_added_partitions,
)
from pyspark_pykafka.source.subscription import selector

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_pykafka.offsets import OffsetRange
    from pyspark_pykafka.options import SourceOptions

# The descriptions of the JVM connector's sources start with this. Their offset documents have the
# same form as pykafka's.
_JVM_DESCRIPTION = "KafkaV"


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """
    What Spark reports for one source of a query in a micro-batch (its SourceProgress).

    ``start`` and ``end`` are offset documents, None if Spark reports none; ``rows`` is the number
    of rows that the source delivered.
    """

    description: str
    start: Document | None
    end: Document | None
    rows: int


def parse_sources(progress: str) -> list[SourceProgress]:
    """
    Parse the sources in the JSON of Spark's StreamingQueryProgress.
    """
    return [
        SourceProgress(
            source["description"],
            offset_document(source.get("startOffset")),
            offset_document(source.get("endOffset")),
            source["numInputRows"],
        )
        for source in json.loads(progress)["sources"]
    ]


def find_source(sources: Iterable[SourceProgress], options: SourceOptions) -> SourceProgress:
    """
    Return the query's source that was read with these options.

    Raises :class:`OffsetsError` unless exactly one source can have been read with them.
    """
    matching = [source for source in sources if _fits(source, options)]
    if len(matching) == 1:
        return matching[0]
    count = f"{len(matching)} sources" if matching else "no source"
    msg = (
        f"the query has {count} that may have the auditor's options; give the auditor the "
        "options of the readStream that it audits, or no options if the query reads the same "
        "topics twice"
    )
    raise OffsetsError("UNKNOWN_SOURCE", msg)


def offset_ranges(source: SourceProgress, options: SourceOptions) -> tuple[OffsetRange, ...]:
    """
    Return the ranges that hold everything that a source read in a micro-batch.

    A partition added since the previous batch starts at 0, although retention may have deleted its
    first records. Raises :class:`OffsetsError` if the start of the batch is unknown.
    """
    end = StreamOffset.from_json(source.end or {})
    start = end.initial if source.start is None else StreamOffset.from_json(source.start)
    if start is None:
        msg = (
            "the start of the query's first batch is unknown: Spark does not report it, and the "
            "batch's end offset does not hold it, since another connector or an older version "
            "planned the batch; later batches are not affected"
        )
        raise OffsetsError("UNKNOWN_START_OFFSET", msg)
    start = with_added_partitions(start, end, options.new_partition_offsets)
    new_starts = dict.fromkeys(new_partitions(start, end), 0)
    is_subscribed = selector(options.strategy)
    return plan_stream(start, end, new_starts, SplitPolicy(), is_subscribed).ranges


def _fits(source: SourceProgress, options: SourceOptions) -> bool:
    if source.description.startswith(_JVM_DESCRIPTION):
        return False
    try:
        offsets = StreamOffset.from_json(source.end or {}).offsets
    except OffsetsError:
        return False
    return bool(offsets) and all(map(selector(options.strategy), offsets))
