"""
Resolving the start and end that users give, against a log in memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.timestamped_log import TimestampedLog

from pyspark_pykafka.errors import OffsetsError
from pyspark_pykafka.offsets import EARLIEST, LATEST, Offsets, TopicPartition
from pyspark_pykafka.options import (
    AtTime,
    Committed,
    Earliest,
    GlobalTimestamp,
    LastOffsets,
    Latest,
    SpecificOffsets,
    SpecificTimestamps,
    TimeAgo,
)
from pyspark_pykafka.source.offset_limits import (
    may_start_at_latest,
    offsets_at,
    resolve_end,
    resolve_sentinels,
    resolve_start,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


LOG = TimestampedLog({P0: [10, 20, 30], P1: [10]}, first=5)


class GrowingLog(TimestampedLog):
    """
    A log to which a producer appends a record of time 99 right after each lookup of times.
    """

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        offsets = super().offsets_for_times(times)
        for tp in times:
            self.times[tp].append(99)
        return offsets


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (Earliest(), {P0: EARLIEST, P1: EARLIEST}),
        (Latest(), {P0: LATEST, P1: LATEST}),
        (SpecificOffsets(((P0, 6), (P1, -2))), {P0: 6, P1: EARLIEST}),
        (SpecificTimestamps(((P0, 15), (P1, 1)), "error"), {P0: 6, P1: 5}),
        (GlobalTimestamp(10, "error"), {P0: 5, P1: 5}),
        (GlobalTimestamp(20, "latest"), {P0: 6, P1: 6}),
    ],
)
def test_start(limit: object, expected: Offsets) -> None:
    """
    Each kind of start resolves to an offset, EARLIEST or LATEST for each partition.
    """
    assert resolve_start(limit, [P0, P1], LOG) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (SpecificOffsets(((P0, 6),)), {P0: 6, P1: LATEST}),
        (SpecificOffsets((), (("t", EARLIEST),)), {P0: EARLIEST, P1: EARLIEST}),
        (SpecificTimestamps(((P0, 15),), "error"), {P0: 6, P1: LATEST}),
        (Committed(), {P0: 7, P1: LATEST}),
    ],
)
def test_fallback_is_for_partitions_without_a_start(limit: object, expected: Offsets) -> None:
    """
    Partitions that the start or the consumer group does not name start at the fallback.
    """
    log = replace(LOG, group={P0: 7})

    assert resolve_start(limit, [P0, P1], log, LATEST) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limit", "start", "end"),
    [
        (AtTime(20), {P0: 6, P1: 6}, {P0: 6, P1: 6}),
        (TimeAgo(25), {P0: 7, P1: 6}, {P0: 7, P1: 6}),
        (TimeAgo(10**9), {P0: 5, P1: 5}, {P0: 5, P1: 5}),
        (LastOffsets(2), {P0: 6, P1: 5}, {P0: 6, P1: 5}),
        (LastOffsets(0), {P0: 8, P1: 6}, {P0: 8, P1: 6}),
        (
            SpecificOffsets(((P0, TimeAgo(35)), (P1, LastOffsets(1)))),
            {P0: 6, P1: 5},
            {P0: 6, P1: 5},
        ),
        (SpecificOffsets(((P0, 6),), (("t", LastOffsets(1)),)), {P0: 6, P1: 5}, {P0: 6, P1: 5}),
    ],
)
def test_positions_in_everyday_words(limit: object, start: Offsets, end: Offsets) -> None:
    """
    Durations count back from now, and numbers of offsets from the end, but not beyond the log's
    start; a partition whose records are all earlier starts or ends at its end.
    """

    def now() -> float:
        return 0.050

    assert resolve_start(limit, [P0, P1], LOG, now=now) == start  # type: ignore[arg-type]
    assert resolve_end(limit, [P0, P1], LOG, now=now) == end  # type: ignore[arg-type]
    assert may_start_at_latest(limit)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "limit", [AtTime(50_001), SpecificOffsets(((P0, 6),), (("t", AtTime(50_001)),))]
)
def test_a_start_in_the_future_is_an_error(limit: object) -> None:
    """
    A start in the future is an error: the read would begin with the records before it.
    """
    with pytest.raises(OffsetsError, match="1970-01-01T00:00:50.00:00, which is in the future"):
        resolve_start(limit, [P0, P1], LOG, now=lambda: 50.0)  # type: ignore[arg-type]
    assert resolve_start(limit, [P0, P1], LOG, now=lambda: 50.001)  # type: ignore[arg-type]
    # The same millisecond: the time that a user gives as the present is rounded up.
    assert resolve_start(limit, [P0, P1], LOG, now=lambda: 50.0002)  # type: ignore[arg-type]


def test_a_start_after_the_year_9999_is_an_error_like_any_other() -> None:
    """
    A time near the end of the calendar, in a zone west of Greenwich, has no date in UTC.
    """
    with pytest.raises(OffsetsError, match="is 253402300800000 ms since 1970, which is in the fu"):
        resolve_start(AtTime(253_402_300_800_000), [P0, P1], LOG, now=lambda: 50.0)


def test_missing_commit_without_a_fallback() -> None:
    """
    The error names the partition without a committed offset and the option that helps, or the
    option and the topic in it that the query does not read.
    """
    with pytest.raises(OffsetsError, match="no offset for t-1; set startingOffsetsFallback"):
        resolve_start(Committed(), [P0, P1], replace(LOG, group={P0: 7}))
    with pytest.raises(
        OffsetsError, match="startingOffsets is given for u, but the query reads no partition"
    ):
        resolve_start(SpecificOffsets((), (("t", -2), ("u", -2))), [P0, P1], LOG)
    with pytest.raises(
        OffsetsError, match="endingOffsets is given for u, but the query reads no partition"
    ):
        resolve_end(SpecificOffsets((), (("t", -1), ("u", -1))), [P0, P1], LOG)


def test_unmatched_start_is_an_error() -> None:
    """
    A time after all records fails by default; the error names partition and time.
    """
    with pytest.raises(OffsetsError, match="No offset matched from request.*t-1 and timestamp 20"):
        resolve_start(GlobalTimestamp(20, "error"), [P0, P1], LOG)


@pytest.mark.parametrize(
    "limit",
    [
        AtTime(20),
        TimeAgo(30),
        GlobalTimestamp(20, "latest"),
        SpecificTimestamps(((P0, 20), (P1, 20)), "latest"),
        SpecificOffsets(((P0, 6), (P1, AtTime(20)))),
        SpecificOffsets((), (("t", AtTime(20)),)),
    ],
    ids=str,
)
def test_records_that_arrive_during_the_lookup_are_not_skipped(limit: object) -> None:
    """
    A record written just after the brokers found none for the time is read: a partition without a
    match starts at the end that its log had before the lookup.
    """
    log = GrowingLog({P0: [10, 20, 30], P1: [10]}, first=5)

    starts = resolve_start(limit, [P0, P1], log, now=lambda: 0.05)  # type: ignore[arg-type]

    assert starts == {P0: 6, P1: 6}


def test_positions_of_commands_skip_no_record_that_arrives_during_the_lookup() -> None:
    """
    The same holds for a position that `pykafka progress set` records.
    """
    log = GrowingLog({P0: [10, 20, 30], P1: [10]}, first=5)

    assert offsets_at({P0: AtTime(20), P1: AtTime(20)}, log) == {P0: 6, P1: 6}


def test_an_unmatched_start_that_is_an_error_reads_no_ends() -> None:
    """
    The strategy ``error`` never starts at a log's end, so the ends are not requested.
    """

    class LogWithoutEnds(TimestampedLog):
        def end_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
            raise AssertionError(tps)

    log = LogWithoutEnds(LOG.times, first=5)

    assert resolve_start(GlobalTimestamp(10, "error"), [P0, P1], log) == {P0: 5, P1: 5}
    assert resolve_start(Earliest(), [P0], log) == {P0: EARLIEST}


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (GlobalTimestamp(20, "latest"), {P0: 6, P1: 6}),
        (SpecificTimestamps(((P0, 40), (P1, 20)), "latest"), {P0: 8, P1: 6}),
        (AtTime(40), {P0: 8, P1: 6}),
        (SpecificOffsets((), (("t", TimeAgo(20)),)), {P0: 7, P1: 6}),
        (SpecificOffsets(((P0, LATEST), (P1, AtTime(20)))), {P0: LATEST, P1: 6}),
        (Latest(), {P0: LATEST, P1: LATEST}),
    ],
    ids=str,
)
def test_unmatched_end_is_the_end_before_the_lookup(limit: object, expected: Offsets) -> None:
    """
    An end time after all records is the log's end of that moment, not LATEST, which a task would
    resolve: records at or after the time that arrive later are not read.
    """
    log = GrowingLog({P0: [10, 20, 30], P1: [10]}, first=5)

    assert resolve_end(limit, [P0, P1], log, now=lambda: 0.05) == expected  # type: ignore[arg-type]


def test_an_end_at_a_time_uses_the_log_ends_of_the_caller() -> None:
    """
    A stream, which has just read the log ends, does not request them again.
    """
    log = GrowingLog({P0: [10, 20, 30], P1: [10]}, first=5)

    assert resolve_end(AtTime(20), [P0, P1], log, {P0: 8, P1: 5}) == {P0: 6, P1: 5}


def test_times_must_name_all_partitions() -> None:
    """
    Timestamps for only some of the partitions raise OffsetsError.
    """
    with pytest.raises(OffsetsError, match="KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED"):
        resolve_start(SpecificTimestamps(((P0, 15),), "error"), [P0, P1], LOG)


def test_earliest_and_latest_resolve_to_offsets() -> None:
    """
    A new stream resolves EARLIEST and LATEST once, and keeps other offsets.
    """
    offsets = {P0: EARLIEST, P1: LATEST}

    assert resolve_sentinels(offsets, LOG) == {P0: 5, P1: 6}
    assert resolve_sentinels({P0: 7}, LOG) == {P0: 7}
