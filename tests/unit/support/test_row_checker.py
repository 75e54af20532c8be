"""
The row checker of the fault tests detects each kind of fault.
"""

from __future__ import annotations

from collections import Counter

import pytest
from tests.support.row_checker import Verdict, check_rows, row_of

ROWS = ["a", "b", "b", "c"]


def test_the_same_rows_in_any_order_are_valid() -> None:
    """
    Rows that are expected twice may appear twice, in any order.
    """
    verdict = check_rows(ROWS, ["b", "c", "a", "b"])

    assert verdict.valid
    assert str(verdict) == "valid"


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (["a", "b", "b"], Verdict(lost=Counter("c"))),
        (["a", "b", "c"], Verdict(lost=Counter("b"))),
        ([], Verdict(lost=Counter("abbc"))),
        (["a", "b", "b", "c", "c", "c"], Verdict(duplicated=Counter("cc"))),
        (["a", "b", "b", "b", "c"], Verdict(duplicated=Counter("b"))),
        (["a", "b", "b", "c", "d"], Verdict(unexpected=Counter("d"))),
        (
            ["a", "a", "b", "d", "d"],
            Verdict(Counter("bc"), Counter("a"), Counter("dd")),
        ),
    ],
    ids=["lost", "one of two", "all", "tripled", "one of two again", "unexpected", "all kinds"],
)
def test_each_kind_of_fault_is_found(actual: list[str], expected: Verdict) -> None:
    """
    Lost, duplicated and unexpected rows are distinguished and counted.
    """
    verdict = check_rows(ROWS, actual)

    assert verdict == expected
    assert not verdict.valid


def test_equal_counts_do_not_pass_for_equal_rows() -> None:
    """
    If as many rows are lost as are duplicated, the total is correct, but the verdict is invalid.
    """
    verdict = check_rows(["a", "b"], ["a", "a"])

    assert verdict == Verdict(lost=Counter("b"), duplicated=Counter("a"))


def test_a_verdict_names_some_rows_of_each_kind() -> None:
    """
    A verdict on many rows shows their number and the first of them.
    """
    verdict = check_rows((str(number) for number in range(7)), ["x", "6", "6"])

    assert str(verdict) == "6 lost: 0, 1, 2, 3, 4, …; 1 duplicated: 6; 1 unexpected: x"


def test_rows_are_compared_without_ignored_columns() -> None:
    """
    Ignored columns and the order of columns do not matter; any other value does.
    """
    row = row_of({"id": 1, "key": "k", "random": 0.5}, ignored={"random"})

    assert row == row_of({"key": "k", "id": 1})
    assert row != row_of({"key": "k", "id": "1"})
    assert row != row_of({"key": "k", "id": 1, "random": 0.5})
