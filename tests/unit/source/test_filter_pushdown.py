"""
Narrowing a batch by filters, on a log in memory: no matching record is left out.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.timestamped_log import TimestampedLog

from pyspark_pykafka.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_pykafka.source.filter_pushdown import Comparison, FilterPushdown

if TYPE_CHECKING:
    from collections.abc import Mapping

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp_of(millis: float) -> datetime:
    """
    Return a time as Spark passes it, in a time zone other than UTC.
    """
    zone = timezone(timedelta(hours=-3, minutes=-30))
    return (EPOCH + timedelta(milliseconds=millis)).astimezone(zone)


def narrowed(
    log: TimestampedLog, *comparisons: Comparison, delay: int | None = None
) -> list[tuple[int, int, int]]:
    """
    Return (partition, start, end) of each range that the comparisons leave.
    """
    pushdown = FilterPushdown(comparisons, delay)
    tps = pushdown.partitions(sorted(log.times))
    starts, ends = pushdown.narrow(dict.fromkeys(tps, EARLIEST), dict.fromkeys(tps, LATEST), log)
    return [(tp.partition, starts[tp], ends[tp]) for tp in starts]


ALL = (0, EARLIEST, LATEST)
HUNDRED = TimestampedLog({P0: list(range(1000, 1100))})


@pytest.mark.parametrize(
    ("comparison", "expected"),
    [
        (Comparison("offset", "=", 7), [(0, 7, 8)]),
        (Comparison("offset", ">", 7), [(0, 8, LATEST)]),
        (Comparison("offset", ">=", 7), [(0, 7, LATEST)]),
        (Comparison("offset", "<", 7), [(0, EARLIEST, 7)]),
        (Comparison("offset", "<=", 7), [(0, EARLIEST, 8)]),
        (Comparison("offset", "in", (9, 7)), [(0, 7, 10)]),
        (Comparison("offset", ">", 500), []),
        (Comparison("offset", "<", 500), [ALL]),
        (Comparison("offset", "<", 0), []),
        (Comparison("offset", "in", ()), [ALL]),
        (Comparison("offset", "=", None), [ALL]),
        (Comparison("value", "=", b"x"), [ALL]),
        (Comparison("partition", "=", 0), [ALL]),
        (Comparison("partition", ">", 0), []),
        (Comparison("topic", "in", ("u", "t")), [ALL]),
        (Comparison("topic", "=", "u"), []),
        (Comparison("timestamp", ">=", timestamp_of(1050)), [(0, 49, LATEST)]),
        (Comparison("timestamp", "<", timestamp_of(1050)), [ALL]),
        (Comparison("timestamp", ">=", timestamp_of(2000)), [(0, 100, LATEST)]),
        (Comparison("timestamp", ">=", timestamp_of(-5)), [ALL]),
        (Comparison("timestamp", ">=", timestamp_of(1050).replace(tzinfo=None)), [ALL]),
    ],
    ids=str,
)
def test_each_comparison(comparison: Comparison, expected: list[tuple[int, int, int]]) -> None:
    """
    Comparisons of offsets, partitions and timestamps narrow the ranges; others do not.
    """
    assert narrowed(HUNDRED, comparison) == expected


@pytest.mark.parametrize("millis", [-315_619_200_000, -1, 0])
def test_times_up_to_1970_keep_records_without_a_timestamp(millis: int) -> None:
    """
    A filter of times up to 1970 narrows no start: records without a timestamp, which old producers
    wrote, have the time -1.
    """
    log = TimestampedLog({P0: [-1, -1, 1000, -1]})

    assert narrowed(log, Comparison("timestamp", ">=", timestamp_of(millis))) == [ALL]
    assert narrowed(log, Comparison("timestamp", ">=", timestamp_of(1))) == [(0, 2, LATEST)]


def test_an_end_before_1970_is_not_one_of_the_special_times() -> None:
    """
    Kafka's negative times mean the log's ends, not times, and are never looked up.
    """

    class LogOfTimes(TimestampedLog):
        def offsets_for_times(
            self, times: Mapping[TopicPartition, int]
        ) -> dict[TopicPartition, int | None]:
            assert min(times.values()) >= 0
            return super().offsets_for_times(times)

    log = LogOfTimes({P0: [-1, 1000]})

    assert narrowed(log, Comparison("timestamp", "<", timestamp_of(-3)), delay=0) == [
        (0, EARLIEST, 1)
    ]


def test_timestamps_narrow_the_end_only_with_a_maximum_delay() -> None:
    """
    A timestamp narrows the end only with maxTimestampDelay: the end is then later by that delay.
    """
    ten = (
        Comparison("timestamp", ">=", timestamp_of(1020)),
        Comparison("timestamp", "<", timestamp_of(1030)),
    )

    assert narrowed(HUNDRED, *ten) == [(0, 19, LATEST)]
    assert narrowed(HUNDRED, *ten, delay=0) == [(0, 19, 31)]
    assert narrowed(HUNDRED, *ten, delay=5) == [(0, 19, 36)]


def test_given_offsets_are_never_widened() -> None:
    """
    Filters never widen the range that the options give.
    """
    pushdown = FilterPushdown((Comparison("offset", ">=", 10), Comparison("offset", "<", 50)))

    assert pushdown.narrow({P0: 20}, {P0: 30}, HUNDRED) == ({P0: 20}, {P0: 30})
    assert pushdown.narrow({P0: 5}, {P0: LATEST}, HUNDRED) == ({P0: 10}, {P0: 50})


def test_repr_has_positions_but_no_values_of_records() -> None:
    """
    The repr has the bounds of offsets and partitions, and no key or value of a record.
    """
    pushdown = FilterPushdown((Comparison("offset", ">=", 7), Comparison("value", "=", b"canary")))

    assert repr(pushdown) == "FilterPushdown(offset >= 7 and value = ...; max_delay_ms=None)"


times = st.lists(st.integers(0, 60), max_size=40)
comparison = st.one_of(
    st.builds(
        Comparison,
        st.just("timestamp"),
        st.sampled_from(["=", "<", "<=", ">", ">="]),
        st.integers(0, 60_000).map(lambda us: timestamp_of(us / 1000)),
    ),
    st.builds(
        Comparison,
        st.just("offset"),
        st.sampled_from(["=", "<", "<=", ">", ">="]),
        st.integers(0, 60),
    ),
    st.builds(
        Comparison,
        st.just("timestamp"),
        st.just("in"),
        st.lists(st.integers(0, 60).map(timestamp_of), min_size=1, max_size=3),
    ),
    st.builds(Comparison, st.just("partition"), st.sampled_from(["=", "<"]), st.integers(0, 2)),
)


def satisfies(comparison: Comparison, values: dict[str, Any]) -> bool:
    """
    Return whether Spark's filter lets a record through.
    """
    value = values[comparison.column]
    if comparison.operator == "in":
        return bool(value in comparison.value)
    if comparison.operator == "=":
        return bool(value == comparison.value)
    less = value <= comparison.value if "=" in comparison.operator else value < comparison.value
    more = value >= comparison.value if "=" in comparison.operator else value > comparison.value
    return bool(less if comparison.operator.startswith("<") else more)


@given(times, times, st.lists(comparison, max_size=4), st.integers(0, 9), st.booleans())
def test_no_matching_record_is_left_out(
    zero: list[int],
    one: list[int],
    comparisons: list[Comparison],
    first: int,
    has_max_delay: bool,
) -> None:
    """
    Every record that satisfies all filters is within the ranges, for any order of timestamps, and
    with a maximum delay that holds for the log.
    """
    log = TimestampedLog({P0: zero, P1: one}, first)
    delays = [max([0, *times[:i]]) - t for times in (zero, one) for i, t in enumerate(times)]

    ranges = narrowed(log, *comparisons, delay=max([0, *delays]) if has_max_delay else None)

    for tp, stamps in log.times.items():
        for offset, millis in enumerate(stamps, first):
            record = {
                "partition": tp.partition,
                "offset": offset,
                "timestamp": timestamp_of(millis),
            }
            if all(satisfies(comparison, record) for comparison in comparisons):
                assert any(
                    p == tp.partition and start <= offset and (end == LATEST or offset < end)
                    for p, start, end in ranges
                )
