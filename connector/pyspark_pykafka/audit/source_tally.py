"""
The input side of the audit: computes the entered records from offsets, and reads the log only
after a mismatch.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_pykafka.audit.record_ids import checksum_of_offsets, checksum_of_range
from pyspark_pykafka.audit.report import WHOLE_BATCH, AuditReport, Checksum, Verdict, report
from pyspark_pykafka.audit.source_progress import find_source, offset_ranges
from pyspark_pykafka.engines.selection import fetch
from pyspark_pykafka.errors import OptionsError, PykafkaError
from pyspark_pykafka.offsets import OffsetRange, TopicPartition, format_partitions
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.schema import SOURCE_TYPES
from pyspark_pykafka.source.factory import fetch_settings, metadata_client
from pyspark_pykafka.source.subscription import is_single_topic, selector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark_pykafka.audit.source_progress import SourceProgress
    from pyspark_pykafka.options.format_values import FormatOptions

    #: Checksums by scope: :data:`WHOLE_BATCH`, or a partition as text.
    Checksums = Mapping[str, Checksum]

logger = logging.getLogger("pyspark_pykafka")

_OFFSETS_ONLY = pa.schema([pa.field("offset", SOURCE_TYPES["offset"])])


class SourceTally:
    """
    Computes the records that entered a query with these options; lives on the driver.

    ``partitions`` are counted individually, besides the whole batch. Raises
    :class:`~pyspark_pykafka.errors.OptionsError` for wrong options.
    """

    def __init__(self, options: Mapping[str, str], partitions: Sequence[TopicPartition]) -> None:
        self._options = parse_stream_source(options)
        _check_every_record_has_a_row(self._options.formats)
        is_selected = selector(self._options.strategy)
        unknown = [tp for tp in partitions if not is_selected(tp)]
        if unknown:
            msg = (
                "the options do not subscribe to the partitions to audit: "
                f"{format_partitions(unknown)}"
            )
            raise OptionsError((msg,))
        self._partitions = frozenset(partitions)
        self._client = metadata_client(self._options)
        self._settings = fetch_settings(self._options, _OFFSETS_ONLY)
        self._has_warned = False
        #: Whether the topic's name is part of a record's id.
        self.include_topic = not is_single_topic(self._options.strategy)

    def report(
        self,
        name: str,
        batch_id: int,
        sources: Iterable[SourceProgress],
        exits: Sequence[Checksums],
    ) -> AuditReport:
        """
        Compare the offsets that entered with the records that left; after a mismatch, compare the
        records in the log instead of the offsets.

        Raises :class:`OffsetsError` if the progress does not show which records entered.
        """
        source = find_source(sources, self._options)
        ranges = offset_ranges(source, self._options)
        full = self._checksums(ranges, self._checksum_of_range)
        by_offsets = report(name, batch_id, full, exits)
        if by_offsets.is_complete:
            return by_offsets
        in_log = self._in_log(name, ranges)
        complete = {
            finding.scope for finding in by_offsets.findings if finding.verdict is Verdict.COMPLETE
        }
        entered = {scope: full[scope] if scope in complete else in_log[scope] for scope in full}
        # Records that the log has lost since the batch was read have entered, too. There are none
        # if the log still has as many records as Spark has read.
        is_complete_log = in_log[WHOLE_BATCH].count in {source.rows, full[WHOLE_BATCH].count}
        max_entered = {} if is_complete_log else {scope: sums.count for scope, sums in full.items()}
        return report(name, batch_id, entered, exits, max_entered)

    def _in_log(self, name: str, ranges: Sequence[OffsetRange]) -> Checksums:
        """
        Return the checksums of the records in the log; empty ones if it cannot be read.
        """
        try:
            in_log = self._checksums(self._after_log_start(ranges), self._checksum_of_records)
        except PykafkaError as error:
            logger.warning("audit %s: the offsets could not be read again: %s", name, error)
            return defaultdict(Checksum)
        if not self._has_warned and in_log[WHOLE_BATCH].count < sum(r.size for r in ranges):
            self._has_warned = True
            logger.warning(
                "audit %s: the log has offsets without a record, so the driver reads the offsets "
                "of such batches again; an auditor without options reads nothing",
                name,
            )
        return in_log

    def _after_log_start(self, ranges: Sequence[OffsetRange]) -> Sequence[OffsetRange]:
        log_starts = self._client.log_start_offsets(r.tp for r in ranges)
        return [
            OffsetRange(r.tp, max(r.start, log_starts[r.tp]), r.end, r.topic_id)
            for r in ranges
            if log_starts.get(r.tp, r.end) < r.end
        ]

    def _checksums(
        self, ranges: Sequence[OffsetRange], checksum: Callable[[OffsetRange], Checksum]
    ) -> Checksums:
        scopes = [WHOLE_BATCH, *map(str, sorted(self._partitions))]
        checksums = dict.fromkeys(scopes, Checksum())
        for r in ranges:
            entered = checksum(r)
            checksums[WHOLE_BATCH] += entered
            if r.tp in self._partitions:
                checksums[str(r.tp)] += entered
        return checksums

    def _checksum_of_range(self, r: OffsetRange) -> Checksum:
        return checksum_of_range(r.tp, r.start, r.end, include_topic=self.include_topic)

    def _checksum_of_records(self, r: OffsetRange) -> Checksum:
        checksum = Checksum()
        for batch in fetch(r, self._settings):
            offsets = batch.column(0).to_numpy()
            checksum += checksum_of_offsets(r.tp, offsets, include_topic=self.include_topic)
        return checksum


def _check_every_record_has_a_row(formats: FormatOptions) -> None:
    """
    Raise :class:`OptionsError` if a read can have fewer rows than records without an error.
    """
    mistakes = []
    if formats.on_bad_record == "deadletter":
        mistakes.append(
            "onBadRecord is 'deadletter', but records without a row would be reported as missing; "
            "make the auditor without options, so that it observes the source"
        )
    if formats.drops_tombstones:
        mistakes.append(
            "debeziumTombstones is 'drop', but records without a row would be reported as missing; "
            "set it to keep, or make the auditor without options, so that it observes the source"
        )
    if mistakes:
        raise OptionsError(tuple(mistakes))
