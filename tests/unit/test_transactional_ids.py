"""
The names of transactions: whose they are, however alike the prefixes of several writes look.
"""

from __future__ import annotations

import pytest

from pyspark_pykafka.sink.transactional_ids import (
    Family,
    end_of_write,
    fallback_id,
    of_any_query,
    of_query,
    of_stream_task,
    of_task,
    of_write,
    other_attempts,
    prefix_of_stream,
    sign_of_rival,
)

QUERY = "0a1b2c3d-0000-0000-0000-000000000000"
OTHER = "20261122-0000-0000-0000-000000000000"


def test_names() -> None:
    """
    A task's name has its number and that of the attempt, and a query's has the query's id, too.
    """
    assert of_task("orders", 2, 0) == "orders-2-0"
    assert of_stream_task("orders", QUERY, 6, 2, 0) == "orders-0a1b2c3d-0-2-0"
    assert fallback_id("orders-2-0", 417).transactional_id == "orders-2-0-again417"
    assert end_of_write("orders", "f00") == "orders-ended-f00"


def test_a_late_attempt_has_a_name_of_its_own() -> None:
    """
    One of the batch before does not fence the same task of this one, and a replay does.
    """
    before, now, later = (of_stream_task("orders", QUERY, batch, 2, 0) for batch in (6, 7, 8))

    assert before != now
    assert before == later


@pytest.mark.parametrize(
    ("family", "name"),
    [
        (of_write("orders"), of_task("orders", 0, 0)),
        (of_write("orders"), of_task("orders", 1234, 17)),
        (of_write("orders"), fallback_id(of_task("orders", 1234, 17), 417).transactional_id),
        (of_query("orders", QUERY), of_stream_task("orders", QUERY, 7, 1234, 3)),
        (
            of_query("orders", QUERY),
            fallback_id(of_stream_task("orders", QUERY, 7, 0, 0), 1).transactional_id,
        ),
        (of_any_query("orders"), of_stream_task("orders", QUERY, 7, 0, 0)),
        (of_any_query("orders"), of_stream_task("orders", OTHER, 8, 0, 0)),
    ],
)
def test_a_write_has_the_names_of_its_tasks(family: Family, name: str) -> None:
    """
    Of all tasks, attempts and batches.
    """
    assert family.has(name)


@pytest.mark.parametrize(
    ("family", "name"),
    [
        (of_write("orders"), of_task("orders-2", 0, 0)),
        (of_write("orders"), fallback_id(of_task("orders-2", 0, 0), 1).transactional_id),
        (of_write("orders"), of_task("orders-20261122", 0, 0)),
        (of_write("orders"), of_task("order", 0, 0)),
        (of_write("orders"), of_stream_task("orders", QUERY, 6, 0, 0)),
        (of_write("orders"), of_stream_task("orders", OTHER, 6, 0, 0)),
        (of_write("orders"), end_of_write("orders", "1-1")),
        (of_write("orders"), sign_of_rival(of_task("orders", 0, 0))),
        (of_query("orders", QUERY), of_stream_task("orders", OTHER, 6, 0, 0)),
        (of_query("orders", OTHER), of_task("orders-20261122", 0, 0)),
        (of_any_query("orders"), of_task("orders", 0, 0)),
        (of_any_query("orders"), of_task("orders-20261122", 0, 0)),
        (of_any_query("orders"), of_stream_task("orders-2", QUERY, 6, 0, 0)),
    ],
)
def test_names_of_others(family: Family, name: str) -> None:
    """
    A prefix that another one begins with, and a stream or a batch write of the same prefix.
    """
    assert not family.has(name)


@pytest.mark.parametrize(
    ("won", "others", "ran_again"),
    [
        ("orders-7-0", ["orders-7-1"], False),
        ("orders-7-2", ["orders-7-0", "orders-7-1", "orders-7-3"], True),
        ("orders-7-0-again99", ["orders-7-0", "orders-7-1"], True),
        ("orders-0a1b2c3d-1-7-0", ["orders-0a1b2c3d-1-7-1"], False),
    ],
)
def test_other_attempts_of_a_task(won: str, others: list[str], ran_again: bool) -> None:
    """
    Those before it and the one beside it; the name that tells of an attempt with another one.
    """
    found = other_attempts([won])

    assert (found.names, found.ran_again) == (others, ran_again)
    assert found.signs == [won.removesuffix("-again99") + "-again"]


def test_names_of_a_stream_stay_few() -> None:
    """
    Two for each task, however many micro-batches there are: brokers keep every name for days.
    """
    tasks = [(batch, task) for batch in range(99) for task in range(2)]
    names = {of_stream_task("orders", QUERY, batch, task, 0) for batch, task in tasks}

    assert len(names) == 2 * 2


def test_whose_stream_a_name_is() -> None:
    """
    All before the query, the turn, the task and the attempt is the prefix; others have none.
    """
    name = of_stream_task("etl-2", QUERY, 1, 3, 0)

    assert prefix_of_stream(name) == "etl-2"
    assert prefix_of_stream(fallback_id(name, 7).transactional_id) == "etl-2"
    assert prefix_of_stream(of_task("etl-2", 3, 0)) is None
