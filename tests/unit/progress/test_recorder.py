"""
The thread beside the query: it never holds the query up, and tells it what cannot be mended.
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
from pyspark_pykafka.progress.contract import NO_PROGRESS_SINK
from pyspark_pykafka.progress.record import Owner, Record
from pyspark_pykafka.progress.recorder import Recorder
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

T0 = TopicPartition("t", 0)


def at(offset: int, batch: int = 0, query: str = "q") -> StreamOffset:
    """
    Return where a query stands after a batch.
    """
    return StreamOffset({T0: offset}, query=QueryIdentity(query, batch))


@pytest.fixture
def server() -> Iterator[Server]:
    """
    Return a server; at the end whoever still writes there is replaced, which ends its work.
    """
    made = Server()
    yield made
    made.down = False
    made.holder, made.alive = Owner("end", "of the test", 10**6), True


def recorder(server: Server, run: str = "a", seconds: float = 20.0) -> Recorder:
    """
    Return a recorder that tries again at once.
    """
    return Recorder(lambda: MemoryStore(server), run, seconds, sleep=lambda _: time.sleep(0.001))


def offset(server: Server) -> int | None:
    """
    Return what is recorded.
    """
    return server.records[T0].offset if T0 in server.records else None


def recorded(server: Server, wanted: int) -> None:
    """
    Wait until that offset is recorded.
    """
    wait_until(lambda: None if offset(server) == wanted else f"{offset(server)}", 20.0)


def test_what_is_complete_is_recorded_by_and_by(server: Server) -> None:
    """
    Without another call of the query's.
    """
    recorder(server).record_completed(at(3))

    recorded(server, 3)


def test_a_batch_that_is_told_of_twice_is_written_once(server: Server) -> None:
    """
    As one that Spark's next question shows to be complete, and its commit says so after that.
    """
    one = recorder(server)
    one.record_completed(at(3))
    recorded(server, 3)

    one.record_completed(at(3))
    one.finish()

    assert server.writes == 1


def test_what_is_complete_never_goes_back(server: Server) -> None:
    """
    What is told of an earlier batch after a later one changes nothing, be it recorded or not.
    """
    server.down = True
    one = recorder(server)
    one.record_completed(at(5, 1))
    one.record_completed(at(3, 0))

    server.down = False
    one.finish()
    one.record_completed(at(3, 0))
    one.finish()

    assert (offset(server), server.writes) == (5, 1)


def test_a_topic_made_again_is_told_of_at_the_same_offsets(server: Server) -> None:
    """
    The offsets are equal, and yet those of another topic.
    """
    one = recorder(server)
    for batch, topic_id in enumerate(("old", "new")):
        one.record_completed(replace(at(3, batch), topic_ids={"t": topic_id}))
        one.finish()

    assert server.records[T0].topic_id == "new"


def test_the_end_of_a_run_waits_for_its_last_batch(server: Server) -> None:
    """
    And gives the place up, so that the next query need not wait for a time-out.
    """
    one = recorder(server)

    one.record_completed(at(3))
    one.finish()

    assert (offset(server), server.alive) == (3, False)


def test_nothing_is_waited_for_where_nothing_was_done() -> None:
    """
    A run that found nothing to read, and a query without a store, end at once.
    """
    recorder(Server(down=True)).finish()
    NO_PROGRESS_SINK.finish()


def test_a_query_can_go_on_after_an_end(server: Server) -> None:
    """
    Another source of the query may keep the run alive.
    """
    one = recorder(server)
    for end in (3, 5):
        one.record_completed(at(end))
        one.finish()

    assert (offset(server), server.alive) == (5, False)


def test_an_outage_holds_nothing_up(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """
    Batches come and go meanwhile; the last of them is recorded when the store is back.
    """
    server.down = True
    one = recorder(server)
    for end in range(50):
        one.record_completed(at(end, end))

    server.down = False

    recorded(server, 49)
    assert sum("reading goes on without" in message for message in caplog.messages) <= 1


def test_the_end_of_a_run_waits_no_longer_than_it_may(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A store that stays down costs the run its bound, and the log says what is missing.
    """
    server.down = True
    one = recorder(server, seconds=0.1)
    one.record_completed(at(3))

    one.finish()

    assert "could not be recorded within 0 s" in caplog.text


def test_an_error_for_good_stops_the_query(server: Server) -> None:
    """
    Its next call raises what the thread met, and every one after it.
    """
    server.holder, server.alive = Owner("r", "z", 4), True
    one = recorder(server)
    one.record_completed(at(3))

    for _ in range(2):
        with pytest.raises(ProgressError, match="held by query r"):
            one.finish()
    with pytest.raises(ProgressError, match="held by query r"):
        one.record_completed(at(4))


def test_a_process_that_was_replaced_is_told_without_anything_to_write(server: Server) -> None:
    """
    An idle query learns of the one that took its place.
    """
    one = recorder(server)
    one.record_completed(at(3))
    recorded(server, 3)

    recorder(server, "b").record_completed(at(3))

    def refused() -> str | None:
        try:
            one.record_completed(at(3))
        except ProgressError as error:
            return None if "process b" in str(error) else str(error)
        return "not refused yet"

    wait_until(refused, 20.0)


def test_a_fault_in_the_store_is_not_swallowed() -> None:
    """
    Whatever ends the thread, the query hears of it.
    """

    class Broken(MemoryStore):
        def write(self, records: Mapping[TopicPartition, Record]) -> None:
            raise LookupError(len(records))

    one = Recorder(lambda: Broken(Server()), "a")
    one.record_completed(at(3))

    with pytest.raises(LookupError):
        one.finish()


def test_an_attempt_is_counted_once_through_an_outage(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """
    However often the store has to be asked, and the log tells the count.
    """
    server.down = True
    one = recorder(server)
    one.record_replay(at(3), at(5, 1))
    server.down = False

    one.finish()

    assert server.records[T0].failing is not None
    assert server.records[T0].failing.attempts == 2
    assert "micro-batch 1 is read again, attempt 2" in caplog.text


def test_only_one_thread_works(server: Server) -> None:
    """
    However often it is told something.
    """
    before = threading.active_count()
    one = recorder(server)
    for end in range(5):
        one.record_completed(at(end))

    assert threading.active_count() == before + 1
