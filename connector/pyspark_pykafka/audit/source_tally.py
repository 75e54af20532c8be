"""
The audit of what entered a query, from its offsets: no record is looked at unless the log has gaps.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_pykafka.audit.record_ids import checksum_of_offsets, checksum_of_range
from pyspark_pykafka.audit.report import WHOLE_BATCH, AuditReport, Checksum, Verdict, report
from pyspark_pykafka.audit.source_progress import ranges_of, source_of
from pyspark_pykafka.engines.selection import fetch
from pyspark_pykafka.errors import OptionsError, PykafkaError
from pyspark_pykafka.offsets import OffsetRange, TopicPartition, format_partitions
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.schema import SOURCE_TYPES
from pyspark_pykafka.source.factory import fetch_settings, metadata_client
from pyspark_pykafka.source.subscription import is_single_topic, matches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark_pykafka.audit.source_progress import SourceProgress

    Tallies = Mapping[str, Checksum]

logger = logging.getLogger("pyspark_pykafka")

_OFFSETS_ONLY = pa.schema([pa.field("offset", SOURCE_TYPES["offset"])])


class SourceTally:
    """
    Where records enter a query with these options; lives on the driver.

    ``partitions`` are told one by one, besides the batch as a whole. Raises
    :class:`~pyspark_pykafka.errors.OptionsError` for options that are wrong.
    """

    def __init__(self, options: Mapping[str, str], partitions: Sequence[TopicPartition]) -> None:
        self._options = parse_stream_source(options)
        others = [tp for tp in partitions if not matches(self._options.strategy, tp)]
        if others:
            msg = (
                f"partitions to audit that the options do not ask for: {format_partitions(others)}"
            )
            raise OptionsError((msg,))
        self._partitions = frozenset(partitions)
        self._broker = metadata_client(self._options)
        self._settings = fetch_settings(self._options, _OFFSETS_ONLY)
        self._told = False
        #: Whether the topic's name is part of a record's id.
        self.include_topic = not is_single_topic(self._options.strategy)

    def report(
        self, name: str, batch: int, sources: Iterable[SourceProgress], left: Sequence[Tallies]
    ) -> AuditReport:
        """
        Compare what entered with what left; where that differs, with what the log holds now.

        Raises :class:`OffsetsError` where nothing tells what entered.
        """
        source = source_of(sources, self._options)
        ranges = ranges_of(source, self._options)
        full = self._tallies(ranges, self._every_offset)
        found = report(name, batch, full, left)
        if found.is_complete:
            return found
        held = self._held(name, ranges)
        same = {it.scope for it in found.findings if it.verdict is Verdict.COMPLETE}
        entered = {at: full[at] if at in same else held[at] for at in full}
        # What the log has lost since has entered, too; Spark's own count says whether there is any.
        is_all = held[WHOLE_BATCH].count in {source.rows, full[WHOLE_BATCH].count}
        max_entered = {} if is_all else {at: tally.count for at, tally in full.items()}
        return report(name, batch, entered, left, max_entered)

    def _held(self, name: str, ranges: Sequence[OffsetRange]) -> Tallies:
        """
        Return what the log holds of ranges, nothing if it cannot be read.
        """
        try:
            held = self._tallies(self._still_there(ranges), self._read)
        except PykafkaError as error:
            logger.warning("audit %s: the offsets could not be read again: %s", name, error)
            return defaultdict(Checksum)
        if not self._told and held[WHOLE_BATCH].count < sum(each.size for each in ranges):
            self._told = True
            logger.warning(
                "audit %s: the log has offsets without a record, so the offsets of such batches "
                "are read again on the driver; an auditor without options reads nothing",
                name,
            )
        return held

    def _still_there(self, ranges: Sequence[OffsetRange]) -> Sequence[OffsetRange]:
        low = self._broker.log_start_offsets(each.tp for each in ranges)
        return [
            OffsetRange(each.tp, max(each.start, low[each.tp]), each.end, each.topic_id)
            for each in ranges
            if low.get(each.tp, each.end) < each.end
        ]

    def _tallies(
        self, ranges: Sequence[OffsetRange], tally: Callable[[OffsetRange], Checksum]
    ) -> Tallies:
        found = {
            WHOLE_BATCH: Checksum(),
            **{str(tp): Checksum() for tp in sorted(self._partitions)},
        }
        for each in ranges:
            met = tally(each)
            found[WHOLE_BATCH] += met
            if each.tp in self._partitions:
                found[str(each.tp)] += met
        return found

    def _every_offset(self, of: OffsetRange) -> Checksum:
        return checksum_of_range(of.tp, of.start, of.end, include_topic=self.include_topic)

    def _read(self, of: OffsetRange) -> Checksum:
        found = Checksum()
        for batch in fetch(of, self._settings):
            found += checksum_of_offsets(
                of.tp, batch.column(0).to_numpy(), include_topic=self.include_topic
            )
        return found
