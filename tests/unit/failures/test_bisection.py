"""
Bisection of a failing batch, against a sink that fails for known records.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.java_exceptions import (
    CANCELLED_JOB,
    INTERRUPTED_THREAD,
    JavaException,
    RaisedByJavaError,
)

from pyspark_pykafka.errors import BrokerUnavailableError, OptionsError
from pyspark_pykafka.failures.bisection import FailedRecord, PoisonPolicy, RecordSet, bisect
from pyspark_pykafka.offsets import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
Place = tuple[TopicPartition, int]
EASY = PoisonPolicy(max_records=10**6, max_share=1.0)


@dataclass
class Sink:
    """
    Accepts a part completely or not at all; fails for poison, and for everything while it is down.

    ``down`` holds the numbers of the runs that fail, counted from 0.
    """

    poison: set[Place]
    down: frozenset[int] = frozenset()
    accepted: list[Place] = field(default_factory=list)
    runs: int = 0
    failures: int = 0

    def run(self, part: RecordSet) -> None:
        number, self.runs = self.runs, self.runs + 1
        places = [(tp, offset) for tp, offsets in part.offsets for offset in offsets]
        assert places, "bisection ran a part without records"
        if number in self.down:
            msg = "down"
            raise RuntimeError(msg)
        bad = self.poison.intersection(places)
        if bad:
            self.failures += 1
            msg = f"cannot take {min(bad)}"
            raise ValueError(msg)
        self.accepted += places


def batch(*offsets: range | list[int]) -> RecordSet:
    """
    Return a batch with these offsets of each partition.
    """
    return RecordSet(
        tuple(
            (TopicPartition("t", p), partition_offsets)
            for p, partition_offsets in enumerate(offsets)
        )
    )


def places(part: RecordSet) -> list[Place]:
    """
    Return each record of a part.
    """
    return [(tp, offset) for tp, offsets in part.offsets for offset in offsets]


def run(
    full_batch: RecordSet, sink: Sink, policy: PoisonPolicy = EASY, probe_works: bool = True
) -> list[FailedRecord]:
    """
    Process a batch as the caller would: as a whole, then by bisection.
    """

    def probe() -> None:
        if not probe_works:
            raise RuntimeError

    try:
        sink.run(full_batch)
    except (ValueError, RuntimeError) as failure:
        return bisect(full_batch, failure, sink.run, probe, policy=policy, sleep=lambda _: None)
    return []


def test_single_failing_record_is_found() -> None:
    """
    A single failing record is returned with its own error; all other records succeed exactly once.
    """
    full_batch, sink = batch(range(100), range(50, 60)), Sink({(T0, 37)})

    (record,) = run(full_batch, sink, PoisonPolicy())

    assert (record.tp, record.offset, record.attempts) == (T0, 37, 2)
    assert str(record.error) == f"cannot take {(T0, 37)}"
    assert sorted(sink.accepted) == [
        position for position in places(full_batch) if position != (T0, 37)
    ]


@given(
    st.lists(st.sets(st.integers(0, 200), max_size=60), min_size=1, max_size=4),
    st.data(),
)
def test_exactly_the_failing_records_are_found(
    offsets: list[set[int]], data: st.DataObject
) -> None:
    """
    Exactly the failing records are found, wherever they are. At most two runs repeat a record that
    has succeeded, to show that the sink works, and the number of runs is bounded.
    """
    full_batch = batch(*(sorted(partition_offsets) for partition_offsets in offsets))
    everything = places(full_batch)
    if not everything:
        return
    max_bad = max(len(everything) - 3, 0)
    bad = set(data.draw(st.lists(st.sampled_from(everything), max_size=max_bad, unique=True)))
    sink = Sink(bad)

    try:
        poisoned = run(full_batch, sink)
    except ValueError:
        # Three failing records before any success look like an outage.
        assert not sink.accepted
        return

    assert {(record.tp, record.offset) for record in poisoned} == bad
    assert set(sink.accepted) == set(everything) - bad
    # At most two runs repeat a record that was accepted, and two only if both controls are poison.
    assert len(sink.accepted) <= len(everything) - len(bad) + 2
    steps = math.ceil(math.log2(len(everything))) + 1
    # Each failing record costs the runs on the path down to it, a run of each good part beside that
    # path, and its last attempt.
    assert sink.runs <= 5 + len(bad) * (2 * steps + 2)


def test_a_failing_record_costs_about_log2_runs() -> None:
    """
    One failing record in a million costs the first run, about twenty failing runs of halves, and
    the second attempt. All other runs process good records for the first time.
    """
    sink = Sink({(T0, 654_321)})

    run(batch(range(1_000_000)), sink)

    assert sink.failures <= 20 + 2
    assert sink.runs <= 2 * 20 + 3


def test_transient_failure_sets_nothing_aside() -> None:
    """
    If only the first run fails, all records succeed once, and none is set aside.
    """
    full_batch, sink = batch(range(64)), Sink(set(), down=frozenset({0}))

    assert run(full_batch, sink) == []
    assert sorted(sink.accepted) == places(full_batch)


@given(st.sets(st.integers(0, 40), max_size=12), st.sets(st.integers(0, 30), max_size=2))
def test_short_outages_set_no_good_record_aside(down: set[int], bad: set[int]) -> None:
    """
    If single runs fail at random, either no good record is set aside, or the whole batch fails.
    """
    poison = {(T0, offset) for offset in bad}
    # Two random failures of the same record would exhaust two attempts.
    isolated = frozenset(n for n in down if n - 1 not in down)
    sink = Sink(poison, down=isolated)
    policy = PoisonPolicy(max_records=100, max_share=1.0, attempts=4)

    try:
        poisoned = run(batch(range(31)), sink, policy)
    except (ValueError, RuntimeError):
        return

    blamed = {(record.tp, record.offset) for record in poisoned}
    assert blamed <= poison
    assert set(sink.accepted) == {(T0, n) for n in range(31)} - blamed
    assert len(sink.accepted) <= 31 - len(blamed) + 2


@pytest.mark.parametrize("records", [1, 2, 3, 4, 100, 10_000])
def test_outage_sets_nothing_aside(records: int) -> None:
    """
    Every run fails, so no record is the cause; that is detected after a few dozen runs.
    """
    sink = Sink(set(), down=frozenset(range(10_000)))

    with pytest.raises(RuntimeError):
        run(batch(range(records)), sink, probe_works=False)

    assert sink.accepted == []
    assert sink.runs <= 40


def test_outage_during_bisection_sets_nothing_aside() -> None:
    """
    If every run fails after some parts have succeeded, the batch fails.
    """
    sink = Sink({(T0, 700)}, down=frozenset(range(9, 10_000)))

    with pytest.raises((RuntimeError, ValueError)):
        run(
            batch(range(1000)), sink, PoisonPolicy(max_records=50, max_share=1.0), probe_works=False
        )

    assert sink.accepted


@pytest.mark.parametrize("records", [3, 10, 100, 1000])
def test_an_outage_that_begins_during_the_search_sets_nothing_aside(records: int) -> None:
    """
    If the sink goes down for good after any number of runs, and only an empty frame still succeeds,
    the batch fails, unless all records were processed before.
    """
    for last_run in range(30):
        for poison in (set(), {(T0, records // 3)}):
            sink = Sink(poison, down=frozenset({0, *range(last_run, 10_000)}))
            try:
                failed = run(batch(range(records)), sink, PoisonPolicy())
            except (RuntimeError, ValueError):
                continue
            assert {(record.tp, record.offset) for record in failed} == poison, (last_run, failed)
            assert not isinstance(failed[0].error if failed else None, RuntimeError)


def test_records_run_again_as_a_control_are_few() -> None:
    """
    Wherever a single poison record is, at most one record that has succeeded is run again, and only
    if the poison record is the last control.
    """
    repeated = Counter[int]()
    for position in range(64):
        sink = Sink({(T0, position)})
        assert [record.offset for record in run(batch(range(64)), sink)] == [position]
        counts = Counter(sink.accepted)
        repeated[position] = sum(counts.values()) - len(counts)
        assert set(counts) == {(T0, n) for n in range(64)} - {(T0, position)}
    assert sum(repeated.values()) <= 1
    assert max(repeated.values()) <= 1


MISSING_TOPIC = (
    "An error occurred while calling o99.save.\n: org.apache.spark.SparkException: Job aborted\n"
    "pyspark_pykafka.errors.MissingTopicError: [UNKNOWN_TOPIC] the record with key b'k' for topic "
    "'misspelt' cannot be written: topic 'misspelt' was not found within 5000 ms"
)


def test_a_record_for_a_missing_topic_is_set_aside() -> None:
    """
    A missing topic is not an outage, even after a long wait: the record that names it is found.
    """

    def run_part(part: RecordSet) -> None:
        if (T0, 57) in places(part):
            raise RuntimeError(MISSING_TOPIC)

    failed = bisect(
        *(batch(range(100)), RuntimeError(MISSING_TOPIC), run_part, lambda: None),
        policy=PoisonPolicy(),
        sleep=lambda _: None,
    )

    assert [(record.tp, record.offset) for record in failed] == [(T0, 57)]


CANCELLATIONS = {"job": CANCELLED_JOB, "thread": INTERRUPTED_THREAD}


@pytest.mark.parametrize("java", CANCELLATIONS.values(), ids=CANCELLATIONS)
def test_a_stopped_query_ends_the_bisection(java: JavaException) -> None:
    """
    A job that `query.stop()` cancels says nothing about its records: no other part is run, even if
    one failure is enough to set a record aside.
    """
    sink = Sink(set())

    def run_part(part: RecordSet) -> None:
        sink.run(part)
        raise RaisedByJavaError(java)

    for failure in (RaisedByJavaError(java), ValueError("cannot take it")):
        with pytest.raises(RaisedByJavaError):
            bisect(
                batch(range(8)), failure, run_part, lambda: None, policy=PoisonPolicy(attempts=1)
            )

    assert sink.runs == 1


@pytest.mark.parametrize(
    "record",
    [
        "at x.y java.lang.InterruptedException: sleep",
        "[SPARK_JOB_CANCELLED] Job 7 cancelled part of cancelled job group 1f2e",
        "pyspark_pykafka.errors.BrokerUnavailableError: no broker answers",
    ],
)
def test_a_record_with_the_text_of_an_error_is_set_aside(record: str) -> None:
    """
    The error of a poison record can quote it: a line of a log is neither a stop nor an outage.
    """

    def run_part(part: RecordSet) -> None:
        if (T0, 57) in places(part):
            msg = f"[CAST_INVALID_INPUT] The value '{record}' cannot be cast"
            raise RuntimeError(msg)

    failed = bisect(
        *(batch(range(100)), RuntimeError(f"The value '{record}'"), run_part, lambda: None),
        policy=PoisonPolicy(),
        sleep=lambda _: None,
    )

    assert [(record.tp, record.offset) for record in failed] == [(T0, 57)]


@pytest.mark.parametrize("probe_works", [True, False])
def test_batch_of_one_record_depends_on_the_probe(probe_works: bool) -> None:
    """
    A single failing record is set aside if the probe succeeds; otherwise the batch fails.
    """
    sink = Sink({(T0, 5)})

    if not probe_works:
        with pytest.raises(RuntimeError):
            run(batch([5]), sink, probe_works=False)
        return
    (record,) = run(batch([5]), sink)

    assert (record.offset, record.attempts, sink.runs) == (5, 2, 2)


def test_retriable_errors_fail_the_batch() -> None:
    """
    The connector's own retriable errors are raised at once, before any part is run again.
    """
    attempted: list[RecordSet] = []

    with pytest.raises(BrokerUnavailableError):
        bisect(
            batch(range(9)),
            BrokerUnavailableError("gone"),
            attempted.append,
            lambda: None,
            policy=EASY,
        )

    assert attempted == []


@pytest.mark.parametrize(
    ("policy", "poison"),
    [(PoisonPolicy(max_records=4, max_share=1.0), 5), (PoisonPolicy(max_share=0.04), 5)],
)
def test_too_many_failing_records_fail_the_batch(policy: PoisonPolicy, poison: int) -> None:
    """
    More failing records than max_records or max_share fail the batch.
    """
    sink = Sink({(T0, 20 * n + 7) for n in range(poison)})

    with pytest.raises(ValueError, match="cannot take"):
        run(batch(range(100)), sink, policy)


@pytest.mark.parametrize(
    "wrong", [{"max_records": 0}, {"max_share": 0.0}, {"attempts": 0}, {"outage_after": 1}]
)
def test_invalid_poison_policies(wrong: dict[str, float]) -> None:
    """
    The error names the invalid value.
    """
    with pytest.raises(OptionsError, match=f"{next(iter(wrong))} is 0|outage_after is 1"):
        PoisonPolicy(**wrong)  # type: ignore[arg-type]
