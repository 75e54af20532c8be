"""
The size of fetches: within the limit, and at the end of a range little more than the rest of it.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyspark_pykafka.engines.wire.consumer.fetch_size import FetchSizing

SLACK_BYTES = 16 * 1024

offsets = st.integers(1, 2**63 - 1)
sizes = st.integers(0, 2**31 - 1)
responses = st.lists(st.tuples(st.integers(-1, 2**63 - 1), sizes), max_size=5)


@given(st.integers(1, 2**31 - 1), responses, offsets)
def test_size_is_within_bounds(limit: int, recorded: list[tuple[int, int]], remaining: int) -> None:
    """
    Whatever was recorded, a fetch requests at least one byte and at most the limit.
    """
    sizing = FetchSizing(limit)
    for covered, size in recorded:
        sizing.record_response(covered, size)

        assert 1 <= sizing.next_fetch_bytes(remaining) <= limit


@given(st.integers(1, 10_000), st.integers(1, 100_000), st.integers(1, 10_000))
def test_end_of_a_range_is_not_over_fetched(record: int, covered: int, remaining: int) -> None:
    """
    With records of one size the last fetch requests the remaining records and little more.
    """
    sizing = FetchSizing(2**31 - 1)
    sizing.record_response(covered, covered * record)

    size = sizing.next_fetch_bytes(remaining)

    assert remaining * record <= size <= remaining * record * 1.1 + SLACK_BYTES


def test_first_fetch_requests_a_megabyte() -> None:
    """
    Before any response, a fetch requests 1 MiB, or the limit if that is smaller.
    """
    assert FetchSizing(50_000_000).next_fetch_bytes(10) == 1024 * 1024
    assert FetchSizing(1000).next_fetch_bytes(10) == 1000


def test_response_without_new_offsets_is_ignored() -> None:
    """
    A response that covers no offset does not change the estimate.
    """
    sizing = FetchSizing(50_000_000)
    sizing.record_response(100, 1000)
    sizing.record_response(0, 5000)
    sizing.record_response(-1, 5000)

    assert sizing.next_fetch_bytes(1000) == int(1000 * 10 * 1.1) + SLACK_BYTES


def test_latest_response_counts() -> None:
    """
    When the record size changes, the next fetch follows.
    """
    sizing = FetchSizing(50_000_000)
    sizing.record_response(100, 1000)
    sizing.record_response(100, 100_000)

    assert sizing.next_fetch_bytes(100) == int(100 * 1000 * 1.1) + SLACK_BYTES
