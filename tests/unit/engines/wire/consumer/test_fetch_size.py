"""
How much a fetch asks for: never more than it may, and at the tail hardly more than is there.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyspark_pykafka.engines.wire.consumer.fetch_size import FetchSizing

SLACK_BYTES = 16 * 1024

offsets = st.integers(1, 2**63 - 1)
sizes = st.integers(0, 2**31 - 1)
answers = st.lists(st.tuples(st.integers(-1, 2**63 - 1), sizes), max_size=5)


@given(st.integers(1, 2**31 - 1), answers, offsets)
def test_size_is_within_bounds(most: int, learnt: list[tuple[int, int]], left: int) -> None:
    """
    Whatever was learnt, a fetch asks for something, and for no more than it may.
    """
    sizing = FetchSizing(most)
    for covered, size in learnt:
        sizing.record_response(covered, size)

        assert 1 <= sizing.next_fetch_bytes(left) <= most


@given(st.integers(1, 10_000), st.integers(1, 100_000), st.integers(1, 10_000))
def test_tail_is_not_over_fetched(record: int, covered: int, left: int) -> None:
    """
    With records of one size the last fetch asks for them all, and for little more.
    """
    sizing = FetchSizing(2**31 - 1)
    sizing.record_response(covered, covered * record)

    size = sizing.next_fetch_bytes(left)

    assert left * record <= size <= left * record * 1.1 + SLACK_BYTES


def test_first_fetch_is_of_middle_size() -> None:
    """
    Before anything is known, a fetch asks for a megabyte, or for less if it may not have that.
    """
    assert FetchSizing(50_000_000).next_fetch_bytes(10) == 1024 * 1024
    assert FetchSizing(1000).next_fetch_bytes(10) == 1000


def test_answer_without_a_new_offset_teaches_nothing() -> None:
    """
    An answer that covered no offset says nothing about the size of records.
    """
    sizing = FetchSizing(50_000_000)
    sizing.record_response(100, 1000)
    sizing.record_response(0, 5000)
    sizing.record_response(-1, 5000)

    assert sizing.next_fetch_bytes(1000) == int(1000 * 10 * 1.1) + SLACK_BYTES


def test_latest_answer_counts() -> None:
    """
    When the records change their size, the next fetch follows.
    """
    sizing = FetchSizing(50_000_000)
    sizing.record_response(100, 1000)
    sizing.record_response(100, 100_000)

    assert sizing.next_fetch_bytes(100) == int(100 * 1000 * 1.1) + SLACK_BYTES
