"""
The check of the order in which a simulated stream has written its rows.
"""

from __future__ import annotations

from tests.simulation.kafka.truth import TrueRecord
from tests.simulation.workloads.order import check_order

from pyspark_pykafka.verify.checker import COMMITTED, Verdict


def anomalies(*values: bytes) -> dict[str, list[object]]:
    """
    Return the anomalies of one key's rows; ``places`` has micro-batch, task and number of each.
    """
    places = {b"a": (0, 0, 0), b"b": (0, 0, 1), b"c": (0, 1, 2), b"d": (1, 0, 3)}
    records = [TrueRecord(index, b"k", value, 0, COMMITTED) for index, value in enumerate(values)]
    verdict = Verdict()
    check_order(verdict, {("t", 0): records}, places)
    return verdict.anomalies


def test_rows_of_one_task_keep_their_order() -> None:
    """
    A row that is written before an earlier row of the same key and task is an anomaly.
    """
    assert anomalies(b"a", b"b", b"d") == {}
    assert anomalies(b"b", b"a") == {"non-monotonic": [("t", 0, 1, b"a")]}


def test_micro_batches_keep_their_order() -> None:
    """
    A row that is first written after those of a later micro-batch is an anomaly.
    """
    assert anomalies(b"a", b"d", b"c") == {"non-monotonic": [("t", 0, 2, b"c")]}


def test_tasks_and_duplicates_have_no_order() -> None:
    """
    Tasks write at the same time, and only the first of equal rows counts.
    """
    assert anomalies(b"c", b"a", b"b", b"a", b"d", b"a") == {}
