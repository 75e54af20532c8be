"""
How a run of `pykafka verify` ends: what it waits for, and which missing records are lost. Writer,
query and reader are stand-ins, and the clock is the test's.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_pykafka.verify import run
from pyspark_pykafka.verify.checker import COMMITTED
from pyspark_pykafka.verify.records import ReadRow, WrittenRecords, decode, encode
from pyspark_pykafka.verify.run import _cleaning_up, _Cleanup, _Parts, _Run, _topics_left
from pyspark_pykafka.verify.topics import Names

if TYPE_CHECKING:
    from pyspark_pykafka.verify.report import Report

NAMES = Names.of("verify")
SECONDS, DEADLINE = 10.0, 30.0


class Worker:
    """
    A thread that does nothing.
    """

    error: Exception | None = None

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Writer(Worker):
    """
    Two records in each of two partitions, acknowledged at once.
    """

    def __init__(self) -> None:
        self.written = WrittenRecords(NAMES.source, 2)
        for partition in range(2):
            records = [(number, encode("run", partition, number)) for number in range(2)]
            self.written.add(partition, records, COMMITTED)


@dataclass
class Query(Worker):
    """
    A query whose last finished micro-batch ends at these offsets.
    """

    ends: dict[int, int]
    fails: bool = False
    has_started: bool = True
    restarts: int = 0

    @property
    def is_running(self) -> bool:
        return not self.fails

    def end_offsets(self, _: str) -> dict[int, int]:
        return self.ends


@dataclass
class Tail(Worker):
    """
    A reader that has seen these records.
    """

    seen: set[tuple[int, int]]


@dataclass
class Ends:
    """
    The end offsets of both topics; a partition with an open transaction has none.
    """

    source: dict[int, int] = field(default_factory=lambda: {0: 2, 1: 2})
    output: dict[int, int] = field(default_factory=lambda: {0: 2, 1: 2})

    def of(self, topic: str) -> dict[int, int]:
        return self.source if topic == NAMES.source else self.output


def finish(
    monkeypatch: pytest.MonkeyPatch,
    query: Query,
    seen: set[tuple[int, int]],
    ends: Ends = Ends(),  # noqa: B008 (never changed)
) -> tuple[Report, float]:
    """
    Carry out a run whose output topic has the records in ``seen``. Return the report, and how many
    seconds the run took.
    """
    clock = [0.0]

    def read_all(*_: object) -> list[ReadRow]:
        return [decode(NAMES.source, encode("run", *position), 0) for position in sorted(seen)]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(run, "read_all", read_all)
    arguments = run.RunArguments(
        options={"kafka.bootstrap.servers": "127.0.0.1:1"},
        topic_prefix="verify",
        partitions=2,
        replication_factor=1,
        seconds=SECONDS,
        rate=1,
        guarantee="at-least-once",
        deadline_seconds=DEADLINE,
        keep=False,
    )
    stand_ins: Any = (Writer(), query, Tail(seen), ends)
    made = _Run(
        *(arguments, NAMES, lambda _: None, None, _Parts(*stand_ins)),
        now=lambda: clock[0],
        sleep=sleep,
    )
    with ExitStack() as stack:
        return made.execute(_Cleanup(stack, lambda _: None)), clock[0]


@pytest.mark.parametrize("error", [RuntimeError("Java has ended"), OSError("no disk")])
def test_a_step_of_the_cleanup_that_fails_ends_no_other(error: Exception) -> None:
    """
    Whatever the error of a step, it is reported, and the other steps run.
    """
    events: list[str] = []
    with ExitStack() as stack:
        cleanup = _Cleanup(stack, events.append)
        cleanup.add("delete the topics", lambda: events.append("deleted"))

        def fail() -> None:
            raise error

        cleanup.add("stop Spark", fail)

    assert events == [f"could not stop Spark: {error}", "deleted"]


LOST_0, STUCK_1 = {"lost": [(NAMES.source, 0, 1)]}, {"stuck": [(NAMES.source, 1, 1)]}
ALL = {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_a_run_ends_when_all_records_have_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    If a consumer has seen all records, the run waits for nothing.
    """
    report, seconds = finish(monkeypatch, Query({}), ALL)

    assert (report.outcome, report.verdict.anomalies) == ("clean", {})
    assert seconds == pytest.approx(SECONDS, abs=1)


def test_records_that_the_query_has_passed_are_lost_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    The run does not wait for the deadline if the query has finished all micro-batches.
    """
    report, seconds = finish(monkeypatch, Query({0: 2, 1: 2}), ALL - {(0, 1)})

    assert report.verdict.anomalies == LOST_0
    assert seconds == pytest.approx(SECONDS, abs=1)


@pytest.mark.parametrize(
    ("query", "ends"),
    [
        (Query({0: 2, 1: 1}), Ends()),
        (Query({0: 2}), Ends()),
        # An open transaction in the source, and one in the output.
        (Query({0: 2, 1: 2}), Ends(source={0: 2})),
        (Query({0: 2, 1: 2}), Ends(output={0: 2})),
    ],
)
def test_a_partition_that_stalls_is_stuck_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch, query: Query, ends: Ends
) -> None:
    """
    A missing record counts as lost if the query has finished its partition. Otherwise it counts as
    stuck, but only after the deadline.
    """
    report, seconds = finish(monkeypatch, query, {(0, 0), (1, 0)}, ends)

    assert report.verdict.anomalies == LOST_0 | STUCK_1
    assert report.outcome == "anomaly"
    assert seconds == pytest.approx(SECONDS + DEADLINE, abs=1)


def test_a_query_that_failed_loses_what_it_had_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A record is lost if the query had finished its partition before it failed.
    """
    report, seconds = finish(monkeypatch, Query({0: 2}, fails=True), {(0, 0), (1, 0)})

    assert report.verdict.anomalies == LOST_0 | STUCK_1
    assert seconds < SECONDS


def test_the_first_record_is_waited_for_until_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    If no record has arrived by the deadline, the run is void.
    """
    report, seconds = finish(monkeypatch, Query({}), set())

    assert report.outcome == "void"
    assert seconds == pytest.approx(run._START_SECONDS + DEADLINE, abs=1)


def test_longest_pause_is_that_of_any_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A partition whose records never arrive pauses for the whole run.
    """
    report, _ = finish(monkeypatch, Query({0: 2}), {(0, 0), (0, 1)})

    assert report.longest_pause == pytest.approx(SECONDS + DEADLINE, abs=1)
    assert report.max_lag == 2


def test_an_interrupted_cleanup_says_what_it_leaves() -> None:
    """
    A second Ctrl-C ends the step that is running; what it leaves is reported together with the way
    to remove it, and the other steps run.
    """
    events: list[str] = []
    bootstrap = "broker:9092"

    def interrupt() -> None:
        raise KeyboardInterrupt

    def clean_up() -> None:
        with _cleaning_up(events.append) as cleanup:
            cleanup.add("delete the checkpoint", lambda: events.append("gone"), leaves="a folder")
            cleanup.add("delete the topics", interrupt, leaves=_topics_left(NAMES, bootstrap))
            cleanup.add("stop Spark", interrupt)

    with pytest.raises(KeyboardInterrupt):
        clean_up()

    done, left = events
    assert done == "gone"
    assert left.startswith("the cleanup leaves topics")
    for topic in NAMES.topics:
        assert f"pykafka topic delete --bootstrap-server {bootstrap} {topic} --execute" in left


def test_a_cleanup_that_fails_says_what_it_leaves() -> None:
    """
    A step that fails leaves what it should have removed; a step that succeeds leaves nothing.
    """
    events: list[str] = []

    def fail() -> None:
        raise OSError(28, "no space")

    with _cleaning_up(events.append) as cleanup:
        cleanup.add("delete the topics", fail, leaves="topics")
        cleanup.add("delete the checkpoint", lambda: None, leaves="a folder")

    assert events == [
        "could not delete the topics: [Errno 28] no space",
        "the cleanup leaves topics",
    ]
