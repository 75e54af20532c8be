"""
Transactional ids, and patterns that distinguish similar prefixes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyspark_pykafka.sink.transactional_ids import (
    any_query_pattern,
    fallback_id,
    fallback_notice_id,
    fence_id,
    other_attempt_ids,
    prefix_pattern,
    query_pattern,
    starting_with_pattern,
    stream_task_transactional_id,
    task_transactional_id,
    write_pattern,
)

if TYPE_CHECKING:
    from pyspark_pykafka.engines.transaction_contract import TransactionalIdPattern

QUERY = "0a1b2c3d-0000-0000-0000-000000000000"
OTHER = "20261122-0000-0000-0000-000000000000"


def test_forms_of_ids() -> None:
    """
    A task's id holds the task's number and the attempt's, and for a stream the query's id.
    """
    assert task_transactional_id("orders", 2, 0) == "orders-2-0"
    assert stream_task_transactional_id("orders", QUERY, 6, 2, 0) == "orders-0a1b2c3d-0-2-0"
    assert fallback_id("orders-2-0", 417).transactional_id == "orders-2-0-again417"
    assert fence_id("orders", "f00") == "orders-ended-f00"


def test_ids_alternate_between_batches() -> None:
    """
    A late attempt of the previous batch does not fence the same task of this batch; the batch after
    the next one reuses the id.
    """
    before, now, later = (
        stream_task_transactional_id("orders", QUERY, batch, 2, 0) for batch in (6, 7, 8)
    )

    assert before != now
    assert before == later


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (write_pattern("orders"), task_transactional_id("orders", 0, 0)),
        (write_pattern("orders"), task_transactional_id("orders", 1234, 17)),
        (
            write_pattern("orders"),
            fallback_id(task_transactional_id("orders", 1234, 17), 417).transactional_id,
        ),
        (query_pattern("orders", QUERY), stream_task_transactional_id("orders", QUERY, 7, 1234, 3)),
        (
            query_pattern("orders", QUERY),
            fallback_id(stream_task_transactional_id("orders", QUERY, 7, 0, 0), 1).transactional_id,
        ),
        (any_query_pattern("orders"), stream_task_transactional_id("orders", QUERY, 7, 0, 0)),
        (any_query_pattern("orders"), stream_task_transactional_id("orders", OTHER, 8, 0, 0)),
        (prefix_pattern("orders"), task_transactional_id("orders", 1234, 17)),
        (
            prefix_pattern("orders"),
            fallback_id(task_transactional_id("orders", 1234, 17), 417).transactional_id,
        ),
        (prefix_pattern("orders"), stream_task_transactional_id("orders", QUERY, 7, 1234, 3)),
        (
            prefix_pattern("orders"),
            fallback_id(stream_task_transactional_id("orders", OTHER, 8, 0, 0), 1).transactional_id,
        ),
        (prefix_pattern("orders"), fence_id("orders", "f00")),
        (prefix_pattern("orders"), fallback_notice_id(task_transactional_id("orders", 0, 0))),
        (
            prefix_pattern("orders"),
            fallback_notice_id(stream_task_transactional_id("orders", QUERY, 6, 0, 0)),
        ),
        (starting_with_pattern("orders"), task_transactional_id("orders-2", 0, 0)),
    ],
)
def test_patterns_match_their_own_ids(pattern: TransactionalIdPattern, name: str) -> None:
    """
    Patterns match the ids of all tasks, attempts and batches.
    """
    assert pattern.matches(name)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (write_pattern("orders"), task_transactional_id("orders-2", 0, 0)),
        (
            write_pattern("orders"),
            fallback_id(task_transactional_id("orders-2", 0, 0), 1).transactional_id,
        ),
        (write_pattern("orders"), task_transactional_id("orders-20261122", 0, 0)),
        (write_pattern("orders"), task_transactional_id("order", 0, 0)),
        (write_pattern("orders"), stream_task_transactional_id("orders", QUERY, 6, 0, 0)),
        (write_pattern("orders"), stream_task_transactional_id("orders", OTHER, 6, 0, 0)),
        (write_pattern("orders"), fence_id("orders", "1-1")),
        (write_pattern("orders"), fallback_notice_id(task_transactional_id("orders", 0, 0))),
        (query_pattern("orders", QUERY), stream_task_transactional_id("orders", OTHER, 6, 0, 0)),
        (query_pattern("orders", OTHER), task_transactional_id("orders-20261122", 0, 0)),
        (any_query_pattern("orders"), task_transactional_id("orders", 0, 0)),
        (any_query_pattern("orders"), task_transactional_id("orders-20261122", 0, 0)),
        (any_query_pattern("orders"), stream_task_transactional_id("orders-2", QUERY, 6, 0, 0)),
        (prefix_pattern("orders"), task_transactional_id("order", 0, 0)),
        (prefix_pattern("orders"), task_transactional_id("orders-2", 0, 0)),
        (prefix_pattern("orders"), task_transactional_id("orders-20261122", 0, 0)),
        (
            prefix_pattern("orders"),
            fallback_id(task_transactional_id("orders-2", 0, 0), 1).transactional_id,
        ),
        (prefix_pattern("orders"), stream_task_transactional_id("orders-2", QUERY, 6, 0, 0)),
        (prefix_pattern("orders"), stream_task_transactional_id("orders.eu", QUERY, 6, 0, 0)),
        (prefix_pattern("orders"), fence_id("orders-2", "f00")),
        (prefix_pattern("orders"), fallback_notice_id(task_transactional_id("orders-2", 0, 0))),
    ],
)
def test_patterns_do_not_match_foreign_ids(pattern: TransactionalIdPattern, name: str) -> None:
    """
    Patterns do not match ids of longer prefixes, or of streams and batch writes with the same
    prefix.
    """
    assert not pattern.matches(name)


@pytest.mark.parametrize(
    ("won", "expected", "were_retried"),
    [
        ("orders-7-0", ["orders-7-1"], False),
        ("orders-7-2", ["orders-7-0", "orders-7-1", "orders-7-3"], True),
        ("orders-7-0-again99", ["orders-7-0", "orders-7-1"], True),
        ("orders-0a1b2c3d-1-7-0", ["orders-0a1b2c3d-1-7-1"], False),
    ],
)
def test_other_attempts_of_a_task(won: str, expected: list[str], were_retried: bool) -> None:
    """
    The ids of earlier attempts, of the next one and of the fallback notice are derived.
    """
    attempts = other_attempt_ids([won])

    assert (attempts.transactional_ids, attempts.were_retried) == (expected, were_retried)
    assert attempts.notice_ids == [won.removesuffix("-again99") + "-again"]


def test_ids_of_a_stream_stay_few() -> None:
    """
    Each task of a stream has two ids, however many micro-batches there are: brokers keep ids for
    days.
    """
    tasks = [(batch, task) for batch in range(99) for task in range(2)]
    names = {stream_task_transactional_id("orders", QUERY, batch, task, 0) for batch, task in tasks}

    assert len(names) == 2 * 2
