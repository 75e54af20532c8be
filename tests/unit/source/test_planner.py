"""
The plan of batches and micro-batches, without a broker.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_pykafka.errors import OffsetsError
from pyspark_pykafka.offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    Offsets,
    StreamOffset,
    TopicPartition,
)
from pyspark_pykafka.source.planner import (
    SplitPolicy,
    StreamPlan,
    plan_batch,
    plan_stream,
    require_assigned,
    split,
)

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))


def borders(ranges: list[OffsetRange]) -> list[tuple[int, int, int]]:
    """
    Return (partition, start, end) of each range.
    """
    return [(r.tp.partition, r.start, r.end) for r in ranges]


@pytest.mark.parametrize(
    ("ranges", "policy", "expected"),
    [
        pytest.param([(1, 3), (4, 4)], SplitPolicy(), [(0, 1, 3)], id="O12 empty dropped"),
        pytest.param(
            [(1, 2), (1, 2), (1, 2)],
            SplitPolicy(3),
            [(0, 1, 2), (1, 1, 2), (2, 1, 2)],
            id="O13 enough without a split",
        ),
        pytest.param(
            [(1, 5)],
            SplitPolicy(4),
            [(0, 1, 2), (0, 2, 3), (0, 3, 4), (0, 4, 5)],
            id="O15 one partition to four",
        ),
        pytest.param(
            [(1, 5), (1, 5)], SplitPolicy(1), [(0, 1, 5), (1, 1, 5)], id="O19 fewer wanted than are"
        ),
        pytest.param(
            [(1, 11)], SplitPolicy(3), [(0, 1, 4), (0, 4, 7), (0, 7, 11)], id="O20 remainder last"
        ),
        pytest.param(
            [(0, 10), (0, 10), (0, 1)],
            SplitPolicy(6),
            [(0, 0, 3), (0, 3, 6), (0, 6, 10), (1, 0, 3), (1, 3, 6), (1, 6, 10), (2, 0, 1)],
            id="O22 nothing dropped beside a small range",
        ),
        pytest.param(
            [(1, 50)],
            SplitPolicy(None, 20),
            [(0, 1, 17), (0, 17, 33), (0, 33, 50)],
            id="O27 capped",
        ),
        pytest.param(
            [(1, 50)],
            SplitPolicy(4, 20),
            [(0, 1, 13), (0, 13, 25), (0, 25, 37), (0, 37, 50)],
            id="O29 the stricter wins",
        ),
    ],
)
def test_split_follows_spark(
    ranges: list[tuple[int, int]], policy: SplitPolicy, expected: list[tuple[int, int, int]]
) -> None:
    """
    Ranges divide as Spark's own calculator divides them (semantics matrix, O12-O29).
    """
    whole = [OffsetRange(TopicPartition("t", n), s, e) for n, (s, e) in enumerate(ranges)]

    assert borders(split(whole, policy)) == expected


sizes = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 5000)), max_size=12)
maybe = st.none() | st.integers(1, 40)


@given(sizes, maybe, st.none() | st.integers(1, 500))
def test_split_covers_every_offset_once(
    given_sizes: list[tuple[int, int]], least: int | None, cap: int | None
) -> None:
    """
    Whatever the policy, the pieces are exactly the input, in order, and none is above the cap.
    """
    whole = [
        OffsetRange(TopicPartition("t", n), start, start + size)
        for n, (start, size) in enumerate(given_sizes)
    ]

    pieces = split(whole, SplitPolicy(least, cap))

    offsets = [(p.tp, o) for p in pieces for o in (p.start, p.end - 1)]
    assert offsets == sorted(offsets)
    for r in whole:
        mine = [p for p in pieces if p.tp == r.tp]
        assert sum(p.size for p in mine) == r.size
        assert not mine or (mine[0].start, mine[-1].end) == (r.start, r.end)
    assert all(p.size <= (cap or p.size) for p in pieces)


def test_batch_keeps_words() -> None:
    """
    Earliest and latest stay words, for each run of the DataFrame to bind anew (R01, O06).
    """
    starting = {P0: EARLIEST, P1: 1, P2: 2}
    ending = {P0: 1, P1: 2, P2: LATEST}

    planned = plan_batch(starting, ending, starting, ending, SplitPolicy())

    assert borders(planned) == [(0, EARLIEST, 1), (1, 1, 2), (2, 2, LATEST)]


def test_batch_splits_inside_words() -> None:
    """
    A split fixes the inner borders only; first and last stay words (O08).
    """
    starting = {P0: EARLIEST, P1: EARLIEST}
    ending = {P0: LATEST, P1: LATEST}

    planned = plan_batch(starting, ending, {P0: 0, P1: 0}, {P0: 100, P1: 3}, SplitPolicy(4))

    assert borders(planned) == [
        (0, EARLIEST, 33),
        (0, 33, 66),
        (0, 66, LATEST),
        (1, EARLIEST, LATEST),
    ]


def test_batch_split_keeps_a_partition_that_is_empty_now() -> None:
    """
    A partition without records keeps its late-bound range, for records that come before the run.
    """
    planned = plan_batch({P0: EARLIEST}, {P0: LATEST}, {P0: 5}, {P0: 5}, SplitPolicy(4))

    assert borders(planned) == [(0, EARLIEST, LATEST)]


def test_batch_start_beyond_end() -> None:
    """
    A start after its end is an error under the JVM connector's condition.
    """
    with pytest.raises(OffsetsError, match="RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET.*t-0"):
        plan_batch({P0: 5}, {P0: 2}, {}, {}, SplitPolicy())


@pytest.mark.parametrize(
    ("given_offsets", "names"),
    [({P0: 1}, "missing: t-1"), ({P0: 1, P1: 1, P2: 1}, "not assigned: t-2")],
)
def test_given_offsets_must_match_assigned(
    given_offsets: dict[TopicPartition, int], names: str
) -> None:
    """
    Offsets for too few or too many partitions are refused by name (O07, O10).
    """
    with pytest.raises(OffsetsError, match=f"DOES_NOT_MATCH_ASSIGNED.*{names}"):
        require_assigned(given_offsets, [P0, P1], "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED")


def planned(
    start: StreamOffset, end: StreamOffset, first: Offsets, min_partitions: int | None = None
) -> StreamPlan:
    """
    Return the plan of a query that still reads the topic t, and no other.
    """
    policy = SplitPolicy(min_partitions)
    return plan_stream(start, end, first, policy, lambda tp: tp.topic == "t")


def test_stream_reads_added_partitions_from_earliest() -> None:
    """
    A partition that appeared between two offsets is read from its first record.
    """
    plan = planned(StreamOffset({P0: 5}), StreamOffset({P0: 7, P1: 3}), {P1: 0})

    assert borders(list(plan.ranges)) == [(0, 5, 7), (1, 0, 3)]
    assert plan.losses == ()


@pytest.mark.parametrize(
    ("start", "end", "earliest", "condition"),
    [
        ({P0: 5, P1: 1}, {P0: 5}, {}, "PARTITIONS_DELETED"),
        ({P0: 5}, {P0: 2}, {}, "PARTITION_OFFSET_CHANGED"),
        (
            {P0: 5},
            {P0: 5, P1: 9},
            {P1: 4},
            "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
        ),
        ({P0: 5}, {P0: 5, P1: 9}, {}, "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS"),
    ],
)
def test_stream_names_each_loss(
    start: dict[TopicPartition, int],
    end: dict[TopicPartition, int],
    earliest: dict[TopicPartition, int],
    condition: str,
) -> None:
    """
    What can no longer be read is reported under the JVM connector's condition.
    """
    plan = planned(StreamOffset(start), StreamOffset(end), earliest)

    assert [loss.condition for loss in plan.losses] == [f"KAFKA_DATA_LOSS.{condition}"]


@pytest.mark.parametrize("end", [3, 5, 9], ids=["fewer", "equal", "more"])
def test_topic_that_was_made_again_is_a_loss(end: int) -> None:
    """
    Another topic under the same name is told by its id, however many records it has; all of the
    new one is planned, for those who go on.
    """
    start = StreamOffset({P0: 5}, {"t": "old"})

    plan = planned(start, StreamOffset({P0: end}, {"t": "new"}), {P0: 1})

    assert [loss.condition for loss in plan.losses] == ["KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED"]
    assert "its id was old and is new now" in plan.losses[0].explanation
    assert plan.ranges == (OffsetRange(P0, 1, end, "new"),)


def test_topic_without_a_known_id_is_taken_as_the_same() -> None:
    """
    Offsets of the JVM connector, and of brokers before 2.8, have no ids to compare.
    """
    for ids in ({"t": "new"}, {}):
        plan = planned(StreamOffset({P0: 5}), StreamOffset({P0: 9}, ids), {})
        assert (plan.losses, plan.ranges) == ((), (OffsetRange(P0, 5, 9, ids.get("t")),))


def test_topic_that_the_options_left_out_is_no_loss() -> None:
    """
    A topic that the user does not subscribe to any more is no data loss; it is named.
    """
    other = TopicPartition("other", 0)

    plan = planned(StreamOffset({P0: 5, other: 7}), StreamOffset({P0: 9}), {})

    assert (plan.losses, plan.unsubscribed) == ((), (other,))


def test_split_ranges_keep_the_topic_id() -> None:
    """
    Each piece of a range says of which topic it is.
    """
    end = StreamOffset({P0: 9}, {"t": "id"})

    plan = planned(StreamOffset({P0: 0}), end, {}, 3)

    assert [r.topic_id for r in plan.ranges] == ["id"] * 3


def test_planning_thousands_of_partitions_is_linear() -> None:
    """
    A plan of 20,000 partitions has one range each, split or not.
    """
    offsets = {TopicPartition("t", n): n % 7 + 1 for n in range(20_000)}
    start = StreamOffset(dict.fromkeys(offsets, 0))

    whole = planned(start, StreamOffset(offsets), {}, 20_000)

    assert len(whole.ranges) == len(offsets)
