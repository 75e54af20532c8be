"""
The pace of a run of `pykafka verify`: which records have not arrived, pauses and lag.
"""

from __future__ import annotations

import pytest

from pyspark_pykafka.verify.checker import ABORTED, COMMITTED, UNKNOWN
from pyspark_pykafka.verify.pace import Arrivals, Pace
from pyspark_pykafka.verify.records import WrittenRecords

#: A time in seconds, and for each partition the numbers of acknowledged and of seen records.
Step = tuple[int, list[tuple[int, int]]]


def pace_of(*steps: Step) -> Pace:
    """
    Return the pace of partitions with these numbers of records at these seconds.
    """
    clock = [0.0]
    pace = Pace(lambda: clock[0])
    partitions = len(steps[0][1])
    written, seen = WrittenRecords("t", partitions), set[tuple[int, int]]()
    arrivals = Arrivals(written, seen)
    for second, counts in steps:
        clock[0] = float(second)
        for partition, (acknowledged, seen_count) in enumerate(counts):
            first = len(written.records["t", partition])
            written.add(partition, [(n, b"") for n in range(first, acknowledged)], COMMITTED)
            seen |= {(partition, number) for number in range(seen_count)}
        arrivals.update()
        pace.sample(arrivals)
    return pace


def test_pace_counts_pauses_with_lag_only() -> None:
    """
    A pause counts only while records are unread, and only after the first record was read.
    """
    pace = pace_of(
        (0, [(10, 0)]),
        (9, [(20, 0)]),
        (10, [(20, 5)]),
        (13, [(30, 5)]),
        (14, [(30, 30)]),
        (30, [(30, 30)]),
        (31, [(40, 30)]),
        (32, [(40, 40)]),
    )

    assert (pace.longest_pause, pace.max_lag) == (3.0, 25)


@pytest.mark.parametrize("seen_before", [0, 1])
def test_a_partition_that_stalls_is_a_pause_while_others_proceed(seen_before: int) -> None:
    """
    Each partition has its pauses, even before its first record; the lag is that of all partitions.
    """
    pace = pace_of(
        (0, [(1, 1), (1, seen_before)]),
        (4, [(5, 5), (5, seen_before)]),
        (8, [(9, 9), (9, seen_before)]),
        (9, [(9, 9), (9, 9)]),
    )

    assert (pace.longest_pause, pace.max_lag) == (8.0, 9 - seen_before)


def test_only_acknowledged_records_are_waited_for() -> None:
    """
    Records of aborted transactions are not waited for, and a record whose commit got no response
    does not stand in for another record.
    """
    written = WrittenRecords("t", 2)
    seen = {(0, 1), (0, 2), (-1, 5)}
    arrivals = Arrivals(written, seen)
    written.add(0, [(0, b""), (1, b"")], COMMITTED)
    written.add(0, [(2, b"")], UNKNOWN)
    written.add(1, [(0, b"")], ABORTED)

    arrivals.update()
    assert (arrivals.waiting, arrivals.arrived) == ({0: {0}, 1: set()}, {0: 1, 1: 0})
    seen.add((0, 0))
    written.add(1, [(1, b"")], COMMITTED)
    arrivals.update()
    assert (arrivals.waiting, arrivals.arrived) == ({0: set(), 1: {1}}, {0: 2, 1: 0})
