"""
Each check of the soak finds a planted fault of its kind: a loss, a duplicate, a hang, a leak.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.soak import truth
from tests.soak.truth import SourceRecord, Truth, output_row
from tests.soak.verdicts import (
    ANOMALY,
    CLEAN,
    GROWTH_PER_START,
    NORMAL_GROWTH,
    VOID,
    ProgressWatch,
    Sample,
    WorkloadResult,
    check_footprint,
    check_kept,
    check_output,
)
from tests.soak.workloads import Inputs, SoakQuery, Workload

from pyspark_pykafka.verify.checker import COMMITTED, UNKNOWN, Verdict
from pyspark_pykafka.verify.records import WrittenRecord

if TYPE_CHECKING:
    from pathlib import Path

    from tests.soak.drivers import Driver
    from tests.soak.rig import Rig
    from tests.soak.truth import OutputRow


def forwarded(*numbers: int) -> Truth:
    """
    Return the truth of one partition whose committed records have these numbers.
    """
    return {("a", 0): [WrittenRecord(n, f"a/0/{n}".encode(), COMMITTED) for n in numbers]}


def row(number: int, tag: str = "0.0.0.x", offset: int | None = None) -> OutputRow:
    return output_row(0, number if offset is None else offset, f"a/0/{number}|{tag}".encode())


def check(
    expected: Truth, rows: list[OutputRow], *, exactly_once: bool = True, is_finished: bool = True
) -> Verdict:
    return check_output(
        expected, rows, exactly_once=exactly_once, is_ordered=True, is_finished=is_finished
    )


def test_each_row_once_is_clean() -> None:
    """
    Rows of several micro-batches, each there once, are not an anomaly.
    """
    assert check(forwarded(0, 1, 2), [row(0), row(1), row(2, "1.0.0.y")]).is_clean


@pytest.mark.parametrize(
    ("rows", "is_finished", "anomaly"),
    [
        ([row(0)], True, "lost"),
        ([row(0)], False, "stuck"),
        ([row(0), row(1), row(1, "0.0.1.y")], True, "duplicate"),
        ([row(1), row(0)], True, "non-monotonic"),
        ([row(0), row(1), row(2)], True, "phantom"),
    ],
)
def test_planted_row_is_found(rows: list[OutputRow], is_finished: bool, anomaly: str) -> None:
    """
    With exactly-once delivery, a row that is missing, repeated, out of order or never written is an
    anomaly.
    """
    assert list(check(forwarded(0, 1), rows, is_finished=is_finished).anomalies) == [anomaly]


def test_repeated_row_of_another_attempt_is_explained() -> None:
    """
    With at-least-once delivery, another attempt of the same micro-batch may repeat a row.
    """
    rows = [row(0, "3.0.0.x"), row(1, "3.0.0.x"), row(1, "3.0.1.y")]

    verdict = check(forwarded(0, 1), rows, exactly_once=False)

    assert (verdict.is_clean, verdict.repeats) == (True, 1)


@pytest.mark.parametrize("tag", ["3.0.0.x", "4.0.0.y"])
def test_repeated_row_without_a_reason_is_found(tag: str) -> None:
    """
    With at-least-once delivery, a row that one attempt repeats, or that is in two micro-batches, is
    an anomaly.
    """
    rows = [row(0, "3.0.0.x"), row(1, "3.0.0.x"), row(1, tag)]

    verdict = check(forwarded(0, 1), rows, exactly_once=False)

    assert verdict.anomalies == {"unexplained duplicate": [("a", 0, 1)]}


def test_kept_micro_batch_that_is_read_again_is_found() -> None:
    """
    A row that is in two kept micro-batches is a duplicate.
    """
    batches = [[truth.kept_row(b"a/0/0", 0, 0)], [truth.kept_row(b"a/0/0", 0, 1)]]

    verdict = check_kept(forwarded(0), batches, is_ordered=True, is_finished=True)

    assert list(verdict.anomalies) == ["duplicate"]


def test_wrong_count_is_found() -> None:
    """
    The value of a window whose count lacks one record differs from the truth.
    """
    numbers = range(0, truth.DELAY + 2 * truth.WINDOW, truth.KEYS)
    records = [SourceRecord(0, n, n, b"") for n in numbers]
    expected = truth.windowed(records)
    (first, *_) = expected["windowed", 0]

    def written(value: bytes) -> list[OutputRow]:
        return [output_row(0, 0, value + b"|0.0.0.x")]

    matching = check(expected, written(first.value))
    wrong = check(expected, written(b"windowed/0/0=1"))

    assert (first.state, matching.is_clean) == (COMMITTED, True)
    assert list(wrong.anomalies) == ["corrupt"]


def test_open_window_is_not_required() -> None:
    """
    A window is required only once the watermark has passed its end.
    """
    expected = truth.windowed([SourceRecord(0, 0, 0, b""), SourceRecord(0, 1, truth.DELAY, b"")])

    assert [record.state for record in expected["windowed", 0]] == [UNKNOWN]


def test_complete_result_is_required_after_each_micro_batch() -> None:
    """
    Each micro-batch writes the counts up to its own end.
    """
    records = [SourceRecord(0, offset, 0, b"") for offset in range(5)]

    expected = truth.complete(records, {0: {0: 2}, 1: {0: 5}})

    values = [record.value for record in expected["complete", 0]]
    assert values == [b"complete/0=2", b"complete/0=5"]
    assert list(check(expected, [output_row(0, 0, b"complete/0=2|0.0.0.x")]).anomalies) == ["lost"]


def test_join_needs_both_sides() -> None:
    """
    A pair is expected for each number that is in both topics.
    """
    left_records = [SourceRecord(0, 0, 1, b""), SourceRecord(0, 1, 2, b"")]

    assert truth.joined(left_records, [SourceRecord(0, 9, 2, b"")]) == {
        ("join", 0): [WrittenRecord(2, b"join/0/2", COMMITTED)]
    }


@pytest.mark.parametrize(
    ("samples", "anomaly"),
    [
        ([({0: 5}, {0: 5}), ({0: 4}, {0: 9})], "progress went back"),
        ([({0: 5}, {0: 4})], "progress ahead"),
    ],
)
def test_wrong_progress_is_found(
    samples: list[tuple[dict[int, int], dict[int, int]]], anomaly: str
) -> None:
    """
    Recorded progress that moves back, or beyond the completed batches, is an anomaly.
    """
    watch = ProgressWatch()
    for recorded, committed in samples:
        watch.add(recorded, committed)

    assert list(watch.anomalies) == [anomaly]


# --- Hangs, void rounds, leaks --------------------------------------------------------------------


def workload(folder: Path, driver: Driver, *, is_finished: bool) -> Workload:
    """
    Return a workload that keeps rows and has read nothing.
    """
    query = SoakQuery("0-source", "repartition", driver, folder, ["a"], [], {}, None)
    query.kept.mkdir(parents=True)
    query.is_finished = is_finished
    return Workload("source", "repartition", "exactly-once", driver, [query])


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    from tests.soak.drivers import Driver

    return Driver("steady", tmp_path, {})


@pytest.fixture
def no_inputs() -> Inputs:
    return Inputs({}, {})


def test_hang_is_found(tmp_path: Path, driver: Driver, no_inputs: Inputs, no_rig: Rig) -> None:
    """
    A query that has not finished at the deadline is an anomaly, and shows its last error.
    """
    hanging = workload(tmp_path, driver, is_finished=False)
    hanging.queries[0].failures.append("no broker answers")

    result = hanging.result(no_rig, no_inputs)

    assert result.outcome == ANOMALY
    assert "no broker answers" in result.anomalies["hung"][0]


def test_round_without_records_is_void(
    tmp_path: Path, driver: Driver, no_inputs: Inputs, no_rig: Rig
) -> None:
    """
    A workload that has moved no record is void: it proves nothing.
    """
    assert workload(tmp_path, driver, is_finished=True).result(no_rig, no_inputs).outcome == VOID


@pytest.fixture
def no_rig() -> Rig:
    """
    Stand in for the rig, which these results do not use.
    """
    return None  # type: ignore[return-value]


def test_outcome_of_a_result() -> None:
    """
    An anomaly takes precedence over a void round.
    """
    result = WorkloadResult("source", "plain", "exactly-once", "steady")

    assert result.outcome == CLEAN
    assert replace(result, void="nothing").outcome == VOID
    assert replace(result, void="nothing", anomalies={"lost": ["1"]}).outcome == ANOMALY


FLAT: Sample = dict.fromkeys(NORMAL_GROWTH, 100)


@pytest.mark.parametrize("name", NORMAL_GROWTH)
def test_leak_is_found(name: str) -> None:
    """
    Growth is a leak if it exceeds the sum of the normal growth and of Spark's growth at each start
    of a query.
    """
    starts = [0, 10, 20]
    allowed = {**FLAT, name: 100 + NORMAL_GROWTH[name] + GROWTH_PER_START[name] * 20}
    grown = {**allowed, name: allowed[name] + 1}

    assert check_footprint([FLAT, FLAT, allowed], starts) == {}
    assert list(check_footprint([FLAT, FLAT, grown], starts)) == [name]
