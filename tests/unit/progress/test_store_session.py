"""
One owner and its store: what is written when, and what is told.
"""

from __future__ import annotations

import logging

import pytest
from tests.support.memory_store import MemoryStore, Server

from pyspark_pykafka.errors import BrokerUnavailableError, ProgressError
from pyspark_pykafka.offsets import QueryIdentity, StreamOffset, TopicPartition
from pyspark_pykafka.progress.record import FailedAttempts, Owner, Record
from pyspark_pykafka.progress.store import ClaimLostError
from pyspark_pykafka.progress.store_session import StoreSession

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def at(first: int, second: int, batch: int, query: str = "q") -> StreamOffset:
    """
    Return where a query of two partitions stands after a batch.
    """
    return StreamOffset({T0: first, T1: second}, query=QueryIdentity(query, batch))


def keeper(server: Server, run: str = "a") -> StoreSession:
    """
    Return a process's keeper.
    """
    return StoreSession(MemoryStore(server), run)


def test_progress_is_written_as_it_comes() -> None:
    """
    Each batch moves the records; a batch that moved nothing writes nothing.
    """
    server = Server()
    one = keeper(server)

    for done in (at(1, 2, 0), at(3, 2, 1), at(3, 2, 1)):
        one.record(done)

    me = Owner("q", "a", 1)
    assert server.records == {T0: Record(3, me, 1), T1: Record(2, me, 0)}
    assert server.writes == 2


def test_a_restart_takes_over_and_names_itself() -> None:
    """
    The next process of the query finds nothing to move, and is the owner all the same.
    """
    server = Server()
    keeper(server).record(at(1, 2, 0))

    keeper(server, "b").record(at(1, 2, 0))

    assert server.records[T0] == Record(1, Owner("q", "b", 2), 0)


def test_a_former_process_is_refused_with_the_name_of_the_new_one() -> None:
    """
    First by the store's token, then for good, whatever it was about to write.
    """
    server = Server()
    old, new = keeper(server), keeper(server, "b")
    old.record(at(1, 2, 0))
    new.record(at(1, 2, 0))

    with pytest.raises(ClaimLostError):
        old.record(at(5, 5, 1))
    with pytest.raises(ProgressError, match=r"written by query q \(process b, epoch 2\) now"):
        old.record(at(5, 5, 1))
    assert server.records[T0].offset == 1


def test_another_query_is_refused_while_one_is_alive() -> None:
    """
    And takes over when that one has gone.
    """
    server = Server()
    one, other = keeper(server), keeper(server, "b")
    one.record(at(1, 2, 0))

    with pytest.raises(ProgressError, match="held by query q "):
        other.record(at(9, 9, 0, "r"))
    one.close()
    other.record(at(9, 9, 0, "r"))

    assert server.records[T1] == Record(9, Owner("r", "b", 2), 0)


def test_a_store_that_is_ahead_is_left_alone_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    A query on a new checkpoint reads old records again; the store waits for it to catch up.
    """
    server = Server({T0: Record(4), T1: Record(0)})
    one = keeper(server)

    for done in (at(1, 1, 0), at(2, 2, 1), at(5, 2, 2)):
        one.record(done)

    (told,) = [message for message in caplog.messages if "ahead" in message]
    assert "t-0 (at 4 for t-0)" in told
    assert server.records[T0].offset == 5


def test_attempts_are_counted_over_processes() -> None:
    """
    Each process that reads a batch again adds one; the cause that somebody left stays.
    """
    server = Server()
    keeper(server, "a").record(at(1, 2, 0))

    counts = [keeper(server, run).count_attempt(at(1, 2, 0), at(1, 4, 1)) for run in "bc"]
    server.records[T1] = Record(2, None, 0, None, FailedAttempts(1, 3, "boom"))
    counts.append(keeper(server, "d").count_attempt(at(1, 2, 0), at(1, 4, 1)))

    assert counts == [FailedAttempts(1, 2), FailedAttempts(1, 3), FailedAttempts(1, 4, "boom")]
    assert server.records[T1].offset == 2


def test_attempts_at_another_batch_start_anew() -> None:
    """
    What is left of a batch before says nothing about this one.
    """
    server = Server({T0: Record(2, failing=FailedAttempts(1, 7, "boom"))})

    assert keeper(server).count_attempt(at(2, 0, 1), at(3, 0, 2)) == FailedAttempts(2, 2)


def test_a_batch_that_finishes_ends_the_count() -> None:
    """
    The record that carried it moves on without it.
    """
    server = Server()
    one = keeper(server)
    one.count_attempt(at(1, 2, 0), at(1, 4, 1))

    one.record(at(1, 4, 1))

    assert {record.failing for record in server.records.values()} == {None}


def test_an_outage_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """
    The error passes to the caller, and the same call works when the store is back.
    """
    caplog.set_level(logging.INFO)
    server = Server(down=True)
    one = keeper(server)
    with pytest.raises(BrokerUnavailableError):
        one.record(at(1, 2, 0))

    server.down = False
    one.record(at(1, 2, 0))

    assert {tp: record.offset for tp, record in server.records.items()} == {T0: 1, T1: 2}
