"""
The session of one process with its store: its writes and its errors.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import TYPE_CHECKING

import pytest
from tests.support.memory_store import MemoryStore, Server

from pyspark_pykafka.errors import BrokerUnavailableError, ProgressError
from pyspark_pykafka.offsets import QueryIdentity, StreamOffset, TopicPartition
from pyspark_pykafka.progress.factory import process_name
from pyspark_pykafka.progress.record import FailedAttempts, Owner, ProgressRecord
from pyspark_pykafka.progress.store import ClaimLostError, NoResponseError
from pyspark_pykafka.progress.store_session import StoreSession

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark_pykafka.offsets import Offsets

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def stream_offset(first: int, second: int, batch: int, query: str = "q") -> StreamOffset:
    """
    Return the offsets of a query of two partitions after a batch.
    """
    return StreamOffset({T0: first, T1: second}, query=QueryIdentity(query, batch))


def make_session(server: Server, run: str = "a") -> StoreSession:
    """
    Return a process's session.
    """
    return StoreSession(MemoryStore(server), run)


def test_each_batch_is_written() -> None:
    """
    Each batch updates the records; a batch without new offsets writes nothing.
    """
    server = Server()
    session = make_session(server)

    for done in (stream_offset(1, 2, 0), stream_offset(3, 2, 1), stream_offset(3, 2, 1)):
        session.record(done)

    owner = Owner("q", "a", 1)
    assert server.records == {T0: ProgressRecord(3, owner, 1), T1: ProgressRecord(2, owner, 0)}
    assert server.writes == 2


def test_restarted_process_becomes_the_owner() -> None:
    """
    The next process of the query has no new offsets to write, and still becomes the owner.
    """
    server = Server()
    make_session(server).record(stream_offset(1, 2, 0))

    make_session(server, "b").record(stream_offset(1, 2, 0))

    assert server.records[T0] == ProgressRecord(1, Owner("q", "b", 2), 0)


class _UnansweringStore(MemoryStore):
    """
    A store whose first write has no response, whether it was carried out or not.
    """

    def __init__(self, server: Server, *, is_applied: bool) -> None:
        super().__init__(server)
        self._is_applied = is_applied
        self._is_first = True

    def write(self, records: Mapping[TopicPartition, ProgressRecord]) -> None:
        is_first, self._is_first = self._is_first, False
        if not is_first or self._is_applied:
            super().write(records)
        if is_first:
            msg = "no response"
            raise NoResponseError(msg)


@pytest.mark.parametrize("is_applied", [True, False])
def test_an_attempt_is_counted_once(*, is_applied: bool) -> None:
    """
    If the response to the count of an attempt is lost, a repetition does not count it twice.
    """
    server = Server()
    session = StoreSession(_UnansweringStore(server, is_applied=is_applied), "a")
    start, end = stream_offset(1, 2, 0), stream_offset(3, 4, 1)

    with pytest.raises(NoResponseError):
        session.count_attempt(start, end)
    assert session.count_attempt(start, end) == FailedAttempts(1, 2)
    assert server.records[T0].failing == FailedAttempts(1, 2)
    assert session.count_attempt(start, end) == FailedAttempts(1, 3)


def test_replaced_process_is_fenced() -> None:
    """
    A replaced process loses its claim, and its next claim fails with an error that names the new
    process.
    """
    server = Server()
    old, new = make_session(server), make_session(server, "b")
    old.record(stream_offset(1, 2, 0))
    new.record(stream_offset(1, 2, 0))

    with pytest.raises(ClaimLostError):
        old.record(stream_offset(5, 5, 1))
    with pytest.raises(ProgressError, match=r"written by query q \(process b, epoch 2\) now"):
        old.record(stream_offset(5, 5, 1))
    assert server.records[T0].offset == 1


def test_replaced_process_is_fenced_by_its_namesake(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Processes in containers are told apart even if their process ids and host names are the same.
    """
    monkeypatch.setattr(os, "getpid", lambda: 7)
    monkeypatch.setattr(socket, "gethostname", lambda: "spark-driver")
    server = Server()
    old, new = make_session(server, process_name()), make_session(server, process_name())
    old.record(stream_offset(1, 2, 0))
    new.record(stream_offset(1, 2, 0))

    with pytest.raises(ClaimLostError):
        old.record(stream_offset(5, 5, 1))
    with pytest.raises(ProgressError, match="written by query q .process 7 on spark-driver #"):
        old.record(stream_offset(5, 5, 1))
    new.record(stream_offset(3, 4, 1))
    assert server.records[T0].offset == 3


def test_another_query_waits_for_the_owner() -> None:
    """
    Another query is rejected while the owner is alive, and takes over once the owner has closed.
    """
    server = Server()
    session, other = make_session(server), make_session(server, "b")
    session.record(stream_offset(1, 2, 0))

    with pytest.raises(ProgressError, match="held by query q "):
        other.record(stream_offset(9, 9, 0, "r"))
    session.close()
    other.record(stream_offset(9, 9, 0, "r"))

    assert server.records[T1] == ProgressRecord(9, Owner("r", "b", 2), 0)


def test_store_ahead_of_the_query_is_not_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    A query with a new checkpoint reads old records again; this is logged once, and the store keeps
    its offset until the query has caught up.
    """
    server = Server({T0: ProgressRecord(4), T1: ProgressRecord(0)})
    session = make_session(server)

    for done in (stream_offset(1, 1, 0), stream_offset(2, 2, 1), stream_offset(5, 2, 2)):
        session.record(done)

    (message,) = [text for text in caplog.messages if "ahead" in text]
    assert "t-0 (at 4 for t-0)" in message
    assert server.records[T0].offset == 5


def test_store_ahead_is_not_moved_back_by_later_batches() -> None:
    """
    The store of another query stays ahead of a query with a new checkpoint, batch after batch,
    although the new query is its owner.
    """
    server = Server({tp: ProgressRecord(4, Owner("old", "z", 1), 0) for tp in (T0, T1)})
    session = make_session(server)

    for done in (stream_offset(1, 1, 0), stream_offset(2, 2, 1), stream_offset(3, 3, 2)):
        session.record(done)

    assert {tp: record.offset for tp, record in server.records.items()} == {T0: 4, T1: 4}


@pytest.mark.parametrize("restarted", [False, True])
def test_store_follows_a_query_that_goes_back(
    caplog: pytest.LogCaptureFixture, *, restarted: bool
) -> None:
    """
    After a truncation that the query allows, its store moves back with it, which is logged.
    Otherwise the store would be ahead of the log, and hide the lag until the log has grown again.
    """
    server = Server()
    session = make_session(server)
    session.record(stream_offset(1000, 7, 0))
    if restarted:
        session = make_session(server, "b")
        session.record(stream_offset(1000, 7, 0))

    session.record(stream_offset(600, 7, 1))
    session.record(stream_offset(650, 7, 2))

    assert {tp: record.offset for tp, record in server.records.items()} == {T0: 650, T1: 7}
    (message,) = [text for text in caplog.messages if "moves back" in text]
    assert "t-0, from 1000 to 600 for t-0" in message


@pytest.mark.parametrize(("end", "recorded"), [(899, 2), (900, 900), (None, 900)])
def test_offset_beyond_the_log_is_replaced(end: int | None, recorded: int) -> None:
    """
    An offset beyond the log's end, whoever recorded it, is replaced by the query's: the log was
    truncated, or recreated without a known topic id. The log's end is looked up once.
    """
    server = Server({T0: ProgressRecord(900), T1: ProgressRecord(0)})
    looked_up: list[list[TopicPartition]] = []

    def end_offsets(tps: Iterable[TopicPartition]) -> Offsets:
        looked_up.append([*tps])
        return {} if end is None else {T0: end}

    session = StoreSession(MemoryStore(server), "a", end_offsets)

    for done in (stream_offset(1, 1, 0), stream_offset(2, 2, 1)):
        session.record(done)

    assert server.records[T0].offset == recorded
    assert looked_up == [[T0]]


def test_attempts_are_counted_across_processes() -> None:
    """
    Each process that reads a batch again adds one attempt; the recorded cause is kept.
    """
    server = Server()
    make_session(server, "a").record(stream_offset(1, 2, 0))

    counts = [
        make_session(server, run).count_attempt(stream_offset(1, 2, 0), stream_offset(1, 4, 1))
        for run in "bc"
    ]
    server.records[T1] = ProgressRecord(2, None, 0, None, FailedAttempts(1, 3, "boom"))
    counts.append(
        make_session(server, "d").count_attempt(stream_offset(1, 2, 0), stream_offset(1, 4, 1))
    )

    assert counts == [FailedAttempts(1, 2), FailedAttempts(1, 3), FailedAttempts(1, 4, "boom")]
    assert server.records[T1].offset == 2


def recreated_offset(offset: int, batch: int, topic_id: str) -> StreamOffset:
    """
    Return the offset of a query of one partition, of a topic with this id.
    """
    return StreamOffset({T0: offset}, {"t": topic_id}, query=QueryIdentity("q", batch))


@pytest.mark.parametrize("end", [5, 1000])
def test_attempt_at_a_recreated_topic_is_recorded_at_its_start(end: int) -> None:
    """
    The old topic's offset is not recorded for the new topic: no record of the new topic has been
    processed.
    """
    server = Server()
    session = make_session(server)
    start, completed = recreated_offset(1000, 0, "old"), recreated_offset(end, 1, "new")

    assert session.count_attempt(start, completed) == FailedAttempts(1, 2)
    attempted = server.records[T0]
    session.record(completed)

    assert (attempted.offset, attempted.topic_id) == (0, "new")
    assert server.records[T0] == ProgressRecord(end, Owner("q", "a", 1), 1, "new")


def test_attempts_of_another_batch_are_ignored() -> None:
    """
    The attempts of an earlier batch do not count for this session.
    """
    server = Server({T0: ProgressRecord(2, failing=FailedAttempts(1, 7, "boom"))})

    assert make_session(server).count_attempt(
        stream_offset(2, 0, 1), stream_offset(3, 0, 2)
    ) == FailedAttempts(2, 2)


def test_finished_batch_ends_the_count() -> None:
    """
    The next record of the partition has no attempts.
    """
    server = Server()
    session = make_session(server)
    session.count_attempt(stream_offset(1, 2, 0), stream_offset(1, 4, 1))

    session.record(stream_offset(1, 4, 1))

    assert {record.failing for record in server.records.values()} == {None}


def test_call_can_be_repeated_after_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    """
    The error is raised, and the same call succeeds once the store is back.
    """
    caplog.set_level(logging.INFO)
    server = Server(down=True)
    session = make_session(server)
    with pytest.raises(BrokerUnavailableError):
        session.record(stream_offset(1, 2, 0))

    server.down = False
    session.record(stream_offset(1, 2, 0))

    assert {tp: record.offset for tp, record in server.records.items()} == {T0: 1, T1: 2}


def test_repr_shows_owner_and_claim() -> None:
    """
    The repr shows whether the store is claimed, and by which process.
    """
    session = make_session(Server())
    before = repr(session)
    session.record(stream_offset(1, 2, 0))

    assert "claimed=False" in before
    assert "owner=query q (process a, epoch 1), claimed=True" in repr(session)
