"""
The checker of `pykafka verify` and of the simulation finds each anomaly in rows that contain it.
"""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_pykafka.verify.checker import ABORTED, COMMITTED, OPEN, UNKNOWN, Verdict, check_source
from pyspark_pykafka.verify.records import ReadRow, WrittenRecords, decode, encode

TOPIC = "input"


def written(*states: str, partitions: int = 1) -> WrittenRecords:
    """
    Partitions that have a record for each state.
    """
    result = WrittenRecords(TOPIC, partitions)
    for partition in range(partitions):
        for number, state in enumerate(states):
            result.add(partition, [(number, encode("run", partition, number))], state)
    return result


def row(number: int, partition: int = 0) -> ReadRow:
    return decode(TOPIC, encode("run", partition, number), 0)


def check(records: WrittenRecords, rows: list[ReadRow], **options: Any) -> Verdict:
    verdict = Verdict()
    check_source(verdict, records.records, [[row] for row in rows], **options)
    return verdict


def test_each_record_once_is_clean() -> None:
    """
    Committed records once and in order, aborted ones not at all: no anomaly.
    """
    records = written(COMMITTED, ABORTED, COMMITTED)

    verdict = check(records, [row(0), row(2)])

    assert verdict.is_clean
    assert (verdict.records, verdict.repeats) == (2, 0)


@pytest.mark.parametrize(
    ("states", "rows", "anomaly", "number"),
    [
        ((COMMITTED, COMMITTED), [row(0)], "lost", 1),
        ((COMMITTED, COMMITTED), [row(0), row(1), row(0)], "duplicate", 0),
        ((COMMITTED, ABORTED), [row(0), row(1)], "aborted read", 1),
        ((COMMITTED, OPEN), [row(0), row(1)], "dirty read", 1),
        ((COMMITTED,), [row(0), row(7)], "phantom", 7),
        ((COMMITTED,), [row(0)._replace(value=b"run/0/0 spoiled")], "corrupt", 0),
        ((COMMITTED, COMMITTED), [row(1), row(0)], "non-monotonic", 0),
    ],
)
def test_an_anomaly_is_found(
    states: tuple[str, ...], rows: list[ReadRow], anomaly: str, number: int
) -> None:
    """
    Each planted anomaly is found at its record, and it is the only one.
    """
    verdict = check(written(*states), rows)

    assert verdict.anomalies == {anomaly: [(TOPIC, 0, number)]}


def test_record_that_the_query_has_not_reached_is_stuck() -> None:
    """
    A record without a row is lost only if the query has read its partition to the end.
    """
    verdict = check(written(COMMITTED, COMMITTED), [row(0)], unfinished={(TOPIC, 0)})

    assert verdict.anomalies == {"stuck": [(TOPIC, 0, 1)]}


def test_a_partition_that_stalls_hides_no_lost_record_of_another() -> None:
    """
    The missing record of a finished partition is lost, and that of an unfinished one is stuck.
    """
    rows = [row(0), row(0, partition=1)]

    verdict = check(written(COMMITTED, COMMITTED, partitions=2), rows, unfinished={(TOPIC, 1)})

    assert verdict.anomalies == {"lost": [(TOPIC, 0, 1)], "stuck": [(TOPIC, 1, 1)]}


@pytest.mark.parametrize("rows", [[row(0)], [row(0), row(1)]])
def test_an_unanswered_commit_may_have_succeeded_or_not(rows: list[ReadRow]) -> None:
    """
    Records whose commit got no response may be read, but need not be.
    """
    assert check(written(COMMITTED, UNKNOWN), rows).is_clean


def test_an_unanswered_commit_is_no_reason_for_a_duplicate() -> None:
    """
    A record whose commit got no response must not be read twice.
    """
    verdict = check(written(UNKNOWN), [row(0), row(0)])

    assert verdict.anomalies == {"duplicate": [(TOPIC, 0, 0)]}


def test_at_least_once_duplicates_are_only_counted() -> None:
    """
    With at-least-once delivery, repeated rows are counted, but they are neither duplicates nor out
    of order.
    """
    rows = [row(0), row(1), row(0), row(1)]

    verdict = check(written(COMMITTED, COMMITTED), rows, exactly_once=False)

    assert verdict.is_clean
    assert verdict.repeats == 2


def test_a_value_that_no_run_writes_is_a_phantom() -> None:
    """
    A value that no run writes is a phantom at its offset.
    """
    verdict = check(written(COMMITTED), [row(0), decode(TOPIC, b"something else", 4)])

    assert verdict.anomalies == {"phantom": [(TOPIC, -1, 4)]}
