"""
The recorder thread: it never delays the query, and reports errors that are not retriable.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.memory_store import MemoryStore, Server

from pyspark_pykafka.errors import ProgressError
from pyspark_pykafka.offsets import QueryIdentity, StreamOffset, TopicPartition
from pyspark_pykafka.progress.contract import NO_PROGRESS_RECORDER
from pyspark_pykafka.progress.record import Owner, ProgressRecord
from pyspark_pykafka.progress.recorder import StoreRecorder, WaitFor
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T0 = TopicPartition("t", 0)


def stream_offset(offset: int, batch: int = 0, query: str = "q") -> StreamOffset:
    """
    Return the offsets of a query after a batch.
    """
    return StreamOffset({T0: offset}, query=QueryIdentity(query, batch))


@pytest.fixture
def server() -> Iterator[Server]:
    """
    Return a server; at the end every remaining writer is replaced, which ends its thread.
    """
    new_server = Server()
    yield new_server
    new_server.down = False
    new_server.holder, new_server.alive = Owner("end", "of the test", 10**6), True


def wait_briefly(
    condition: threading.Condition, predicate: Callable[[], bool], timeout: float | None = None
) -> bool:
    """
    Wait as a recorder does, but let every timeout pass at once.
    """
    return condition.wait_for(predicate, None if timeout is None else 0.001)


def make_recorder(
    server: Server, run: str = "a", wait_for: WaitFor = threading.Condition.wait_for
) -> StoreRecorder:
    """
    Return a recorder that retries at once.
    """
    return StoreRecorder(
        lambda: MemoryStore(server),
        run,
        finish_seconds=20.0,
        sleep=lambda _: time.sleep(0.001),
        wait_for=wait_for,
    )


def offset(server: Server) -> int | None:
    """
    Return the recorded offset.
    """
    return server.records[T0].offset if T0 in server.records else None


def await_offset(server: Server, expected: int) -> None:
    """
    Wait until this offset is recorded.
    """
    wait_until(lambda: None if offset(server) == expected else f"{offset(server)}", 20.0)


def test_completed_batch_is_recorded_in_the_background(server: Server) -> None:
    """
    A completed batch is recorded without another call of the query.
    """
    make_recorder(server).record_completed(stream_offset(3))

    await_offset(server, 3)


def test_batch_reported_twice_is_written_once(server: Server) -> None:
    """
    A batch that is reported by Spark's next plan, and again by its later commit, is written once.
    """
    recorder = make_recorder(server)
    recorder.record_completed(stream_offset(3))
    await_offset(server, 3)

    recorder.record_completed(stream_offset(3))
    recorder.finish()

    assert server.writes == 1


def test_older_batch_is_ignored(server: Server) -> None:
    """
    A report of an earlier batch after a later one changes nothing, whether or not the later one has
    been recorded yet.
    """
    server.down = True
    recorder = make_recorder(server)
    recorder.record_completed(stream_offset(5, 1))
    recorder.record_completed(stream_offset(3, 0))

    server.down = False
    recorder.finish()
    recorder.record_completed(stream_offset(3, 0))
    recorder.finish()

    assert (offset(server), server.writes) == (5, 1)


def test_recreated_topic_at_equal_offsets_is_recorded(server: Server) -> None:
    """
    Equal offsets of a recreated topic are recorded, with the new topic id.
    """
    recorder = make_recorder(server)
    for batch, topic_id in enumerate(("old", "new")):
        recorder.record_completed(replace(stream_offset(3, batch), topic_ids={"t": topic_id}))
        recorder.finish()

    assert server.records[T0].topic_id == "new"


def test_finish_waits_for_the_last_batch(server: Server) -> None:
    """
    Finishing waits for the last batch and releases the claim, so that the next query need not wait
    for a timeout.
    """
    recorder = make_recorder(server)

    recorder.record_completed(stream_offset(3))
    recorder.finish()

    assert (offset(server), server.alive) == (3, False)


def test_finish_without_progress_returns_at_once() -> None:
    """
    A run without new records, and a query without a store, do not wait.
    """
    make_recorder(Server(down=True)).finish()
    NO_PROGRESS_RECORDER.finish()


def test_recorder_continues_after_finish(server: Server) -> None:
    """
    The recorder works after finish, too: another source of the query may keep the run alive.
    """
    recorder = make_recorder(server)
    for end in (3, 5):
        recorder.record_completed(stream_offset(end))
        recorder.finish()

    assert (offset(server), server.alive) == (5, False)


def test_outage_does_not_delay_the_query(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """
    Batches continue during an outage; the last one is recorded when the store is back, and the
    outage is logged at most once.
    """
    server.down = True
    recorder = make_recorder(server)
    for end in range(50):
        recorder.record_completed(stream_offset(end, end))

    server.down = False

    await_offset(server, 49)
    assert sum("reading continues" in message for message in caplog.messages) <= 1


def test_finish_is_bounded(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """
    If the store stays down, finish returns after its timeout and logs the missing offsets.
    """
    server.down = True
    recorder = make_recorder(server, wait_for=wait_briefly)
    recorder.record_completed(stream_offset(3))

    recorder.finish()

    assert "could not be recorded within 20 s" in caplog.text


def test_fatal_error_is_raised_by_every_later_call(server: Server) -> None:
    """
    The error of the thread is raised by the next call and by every call after it.
    """
    server.holder, server.alive = Owner("r", "z", 4), True
    recorder = make_recorder(server)
    recorder.record_completed(stream_offset(3))

    for _ in range(2):
        with pytest.raises(ProgressError, match="held by query r"):
            recorder.finish()
    with pytest.raises(ProgressError, match="held by query r"):
        recorder.record_completed(stream_offset(4))


def test_idle_process_notices_that_it_was_replaced(server: Server) -> None:
    """
    A query without new batches learns of the process that replaced it at its next keep-alive.
    """
    recorder = make_recorder(server, wait_for=wait_briefly)
    recorder.record_completed(stream_offset(3))
    await_offset(server, 3)

    make_recorder(server, "b").record_completed(stream_offset(3))

    def refused() -> str | None:
        try:
            recorder.record_completed(stream_offset(3))
        except ProgressError as error:
            return None if "process b" in str(error) else str(error)
        return "not refused yet"

    wait_until(refused, 20.0)


def test_unexpected_error_of_the_store_is_raised() -> None:
    """
    Any error that ends the thread reaches the query.
    """

    class Broken(MemoryStore):
        def write(self, records: Mapping[TopicPartition, ProgressRecord]) -> None:
            raise LookupError(len(records))

    recorder = StoreRecorder(lambda: Broken(Server()), "a")
    recorder.record_completed(stream_offset(3))

    with pytest.raises(LookupError):
        recorder.finish()


def test_replay_is_attempt_two_despite_retries(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A replay is recorded as attempt 2, even if writing it to the store had to be retried, and is
    logged.
    """
    server.down = True
    recorder = make_recorder(server)
    recorder.record_replay(stream_offset(3), stream_offset(5, 1))
    server.down = False

    recorder.finish()

    failing = server.records[T0].failing
    assert failing is not None
    assert failing.attempts == 2
    assert "Micro-batch 1 is read again, attempt 2" in caplog.text


def test_recorder_has_one_thread(server: Server) -> None:
    """
    Any number of reports starts one thread.
    """
    before = threading.active_count()
    recorder = make_recorder(server)
    for end in range(5):
        recorder.record_completed(stream_offset(end))

    assert threading.active_count() == before + 1
