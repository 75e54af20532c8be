"""
Planning batches and micro-batches, without a broker.
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
    RangeLimitOption,
    SplitPolicy,
    StreamPlan,
    plan_batch,
    plan_stream,
    require_assigned,
    split,
)

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))


def bounds(ranges: list[OffsetRange]) -> list[tuple[int, int, int]]:
    """
    Return (partition, start, end) of each range.
    """
    return [(r.tp.partition, r.start, r.end) for r in ranges]


@pytest.mark.parametrize(
    ("ranges", "policy", "expected"),
    [
        pytest.param([(1, 3), (4, 4)], SplitPolicy(), [(0, 1, 3)], id="empty range"),
        pytest.param(
            [(1, 2), (1, 2), (1, 2)],
            SplitPolicy(3),
            [(0, 1, 2), (1, 1, 2), (2, 1, 2)],
            id="enough without a split",
        ),
        pytest.param(
            [(1, 5)],
            SplitPolicy(4),
            [(0, 1, 2), (0, 2, 3), (0, 3, 4), (0, 4, 5)],
            id="one partition to four",
        ),
        pytest.param(
            [(1, 5), (1, 5)],
            SplitPolicy(1),
            [(0, 1, 5), (1, 1, 5)],
            id="fewer tasks than ranges",
        ),
        pytest.param(
            [(1, 11)], SplitPolicy(3), [(0, 1, 4), (0, 4, 7), (0, 7, 11)], id="remainder last"
        ),
        pytest.param(
            [(0, 10), (0, 10), (0, 1)],
            SplitPolicy(6),
            [(0, 0, 3), (0, 3, 6), (0, 6, 10), (1, 0, 3), (1, 3, 6), (1, 6, 10), (2, 0, 1)],
            id="large ranges beside a small one",
        ),
        pytest.param(
            [(1, 50)],
            SplitPolicy(None, 20),
            [(0, 1, 17), (0, 17, 33), (0, 33, 50)],
            id="capped",
        ),
        pytest.param(
            [(1, 50)],
            SplitPolicy(4, 20),
            [(0, 1, 13), (0, 13, 25), (0, 25, 37), (0, 37, 50)],
            id="the stricter wins",
        ),
    ],
)
def test_split_follows_spark(
    ranges: list[tuple[int, int]], policy: SplitPolicy, expected: list[tuple[int, int, int]]
) -> None:
    """
    Ranges are split as by Spark's KafkaOffsetRangeCalculator.
    """
    offset_ranges = [OffsetRange(TopicPartition("t", n), s, e) for n, (s, e) in enumerate(ranges)]

    assert bounds(split(offset_ranges, policy)) == expected


sizes = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 5000)), max_size=12)
maybe = st.none() | st.integers(1, 40)


@given(sizes, maybe, st.none() | st.integers(1, 500))
def test_split_covers_every_offset_once(
    starts_and_sizes: list[tuple[int, int]], minimum: int | None, cap: int | None
) -> None:
    """
    For every policy the pieces cover exactly the input, in order, and none exceeds the cap.
    """
    offset_ranges = [
        OffsetRange(TopicPartition("t", n), start, start + size)
        for n, (start, size) in enumerate(starts_and_sizes)
    ]

    pieces = split(offset_ranges, SplitPolicy(minimum, cap))

    offsets = [(p.tp, o) for p in pieces for o in (p.start, p.end - 1)]
    assert offsets == sorted(offsets)
    for r in offset_ranges:
        of_range = [p for p in pieces if p.tp == r.tp]
        assert sum(p.size for p in of_range) == r.size
        assert not of_range or (of_range[0].start, of_range[-1].end) == (r.start, r.end)
    assert all(p.size <= (cap or p.size) for p in pieces)


def test_batch_keeps_earliest_and_latest() -> None:
    """
    EARLIEST and LATEST stay in the plan: each run of the DataFrame resolves them.
    """
    starts = {P0: EARLIEST, P1: 1, P2: 2}
    ends = {P0: 1, P1: 2, P2: LATEST}

    planned = plan_batch(starts, ends, starts, ends, SplitPolicy(), topic_ids={})

    assert bounds(planned) == [(0, EARLIEST, 1), (1, 1, 2), (2, 2, LATEST)]


def test_batch_split_keeps_earliest_and_latest() -> None:
    """
    A split fixes only inner offsets; the first start and the last end stay unresolved.
    """
    starts = {P0: EARLIEST, P1: EARLIEST}
    ends = {P0: LATEST, P1: LATEST}

    log_starts, log_ends = {P0: 0, P1: 0}, {P0: 100, P1: 3}
    planned = plan_batch(starts, ends, log_starts, log_ends, SplitPolicy(4), topic_ids={})

    assert bounds(planned) == [
        (0, EARLIEST, 33),
        (0, 33, 66),
        (0, 66, LATEST),
        (1, EARLIEST, LATEST),
    ]


def test_batch_split_keeps_an_empty_partition() -> None:
    """
    A partition without records keeps its unresolved range, for records that arrive before the run.
    """
    starts, ends, log = {P0: EARLIEST}, {P0: LATEST}, {P0: 5}
    planned = plan_batch(starts, ends, log, log, SplitPolicy(4), topic_ids={})

    assert bounds(planned) == [(0, EARLIEST, LATEST)]


@pytest.mark.parametrize("policy", [SplitPolicy(), SplitPolicy(4), SplitPolicy(None, 3)])
def test_ranges_of_a_batch_have_the_ids_of_their_topics(policy: SplitPolicy) -> None:
    """
    Each range has the topic id of the plan, resolved or not, split or not.
    """
    other = TopicPartition("u", 0)
    starts, ends = {P0: EARLIEST, P1: 2, other: EARLIEST}, {P0: LATEST, P1: 20, other: LATEST}
    log_starts, log_ends = {P0: 0, other: 4}, {P0: 9, other: 4}

    ids = {"t": "id-t", "u": "id-u"}
    planned = plan_batch(starts, ends, log_starts, log_ends, policy, topic_ids=ids)

    assert {r.topic_id for r in planned if r.tp.topic == "t"} == {"id-t"}
    assert {r.topic_id for r in planned if r.tp == other} == {"id-u"}


def test_batch_start_beyond_end() -> None:
    """
    A start beyond its end raises OffsetsError with the JVM connector's condition.
    """
    with pytest.raises(OffsetsError, match="RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET.*t-0"):
        plan_batch({P0: 5}, {P0: 2}, {}, {}, SplitPolicy(), topic_ids={})


@pytest.mark.parametrize(
    ("offsets", "names"),
    [({P0: 1}, "missing: t-1"), ({P0: 1, P1: 1, P2: 1}, "not assigned: t-2")],
)
def test_given_offsets_must_match_assigned(offsets: dict[TopicPartition, int], names: str) -> None:
    """
    The error names missing and unassigned partitions.
    """
    option = RangeLimitOption("endingOffsets", "DOES_NOT_MATCH_ASSIGNED", "use -1 for latest")

    expected = rf"MATCH_ASSIGNED\] endingOffsets does not name .*{names}"
    with pytest.raises(OffsetsError, match=expected):
        require_assigned(offsets, [P0, P1], option)


def planned(
    start: StreamOffset, end: StreamOffset, first: Offsets, min_partitions: int | None = None
) -> StreamPlan:
    """
    Return the plan of a query that subscribes to the topic t only.
    """
    policy = SplitPolicy(min_partitions)
    return plan_stream(start, end, first, policy, lambda tp: tp.topic == "t")


def test_stream_reads_added_partitions_from_earliest() -> None:
    """
    A partition added between two offsets is read from its first record.
    """
    plan = planned(StreamOffset({P0: 5}), StreamOffset({P0: 7, P1: 3}), {P1: 0})

    assert bounds(list(plan.ranges)) == [(0, 5, 7), (1, 0, 3)]
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
    Each kind of data loss is reported with the JVM connector's condition.
    """
    plan = planned(StreamOffset(start), StreamOffset(end), earliest)

    assert [loss.condition for loss in plan.losses] == [f"KAFKA_DATA_LOSS.{condition}"]


@pytest.mark.parametrize("end", [3, 5, 9], ids=["fewer", "equal", "more"])
def test_recreated_topic_is_data_loss(end: int) -> None:
    """
    A topic deleted and recreated is reported as data loss by its id, however many records it has;
    the plan reads the new topic from its start.
    """
    start = StreamOffset({P0: 5}, {"t": "old"})

    plan = planned(start, StreamOffset({P0: end}, {"t": "new"}), {P0: 1})

    assert [loss.condition for loss in plan.losses] == ["KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED"]
    assert "its id was old and is new now" in plan.losses[0].explanation
    assert plan.ranges == (OffsetRange(P0, 1, end, "new"),)


def test_topic_without_an_id_counts_as_the_same() -> None:
    """
    Offsets of the JVM connector, or of brokers before 2.8, have no topic ids (KIP-516).
    """
    for ids in ({"t": "new"}, {}):
        plan = planned(StreamOffset({P0: 5}), StreamOffset({P0: 9}, ids), {})
        assert (plan.losses, plan.ranges) == ((), (OffsetRange(P0, 5, 9, ids.get("t")),))


def test_unsubscribed_topic_is_no_data_loss() -> None:
    """
    A topic that the options no longer subscribe to is listed, but is not data loss.
    """
    other = TopicPartition("other", 0)

    plan = planned(StreamOffset({P0: 5, other: 7}), StreamOffset({P0: 9}), {})

    assert (plan.losses, plan.unsubscribed) == ((), (other,))


def test_split_ranges_keep_the_topic_id() -> None:
    """
    Each piece of a range has its topic's id.
    """
    end = StreamOffset({P0: 9}, {"t": "id"})

    plan = planned(StreamOffset({P0: 0}), end, {}, 3)

    assert [r.topic_id for r in plan.ranges] == ["id"] * 3


def test_planning_thousands_of_partitions_is_linear() -> None:
    """
    With a minimum of 20,000 tasks, 20,000 partitions are planned with one range each.
    """
    offsets = {TopicPartition("t", n): n % 7 + 1 for n in range(20_000)}
    start = StreamOffset(dict.fromkeys(offsets, 0))

    plan = planned(start, StreamOffset(offsets), {}, 20_000)

    assert len(plan.ranges) == len(offsets)
