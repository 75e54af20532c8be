"""
What a query's filters leave of a batch, against a log in memory: never a wanted record less.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_pykafka.offsets import EARLIEST, LATEST, Offsets, TopicPartition
from pyspark_pykafka.source.filter_pushdown import Comparison, FilterPushdown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Log:
    """
    Partitions whose records carry these times in ms; offsets count from ``first``.
    """

    times: Mapping[TopicPartition, list[int]]
    first: int = 0

    def log_start_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
        return dict.fromkeys(tps, self.first)

    def end_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
        return {tp: self.first + len(self.times[tp]) for tp in tps}

    def committed_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
        raise AssertionError(tps)

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        return {
            tp: next((self.first + i for i, t in enumerate(self.times[tp]) if t >= ms), None)
            for tp, ms in times.items()
        }


def at(millis: float) -> datetime:
    """
    Return a time as Spark hands it over, in a zone that is not UTC.
    """
    zone = timezone(timedelta(hours=-3, minutes=-30))
    return (EPOCH + timedelta(milliseconds=millis)).astimezone(zone)


def cut(log: Log, *comparisons: Comparison, delay: int | None = None) -> list[tuple[int, int, int]]:
    """
    Return (partition, start, end) of what is left of the whole log.
    """
    pushdown = FilterPushdown(comparisons, delay)
    tps = pushdown.partitions(sorted(log.times))
    starts, ends = pushdown.narrow(dict.fromkeys(tps, EARLIEST), dict.fromkeys(tps, LATEST), log)
    return [(tp.partition, starts[tp], ends[tp]) for tp in starts]


ALL = (0, EARLIEST, LATEST)
HUNDRED = Log({P0: list(range(1000, 1100))})


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
        (Comparison("timestamp", ">=", at(1050)), [(0, 49, LATEST)]),
        (Comparison("timestamp", "<", at(1050)), [ALL]),
        (Comparison("timestamp", ">=", at(2000)), [(0, 100, LATEST)]),
        (Comparison("timestamp", ">=", at(-5)), [ALL]),
        (Comparison("timestamp", ">=", at(1050).replace(tzinfo=None)), [ALL]),
    ],
    ids=str,
)
def test_each_comparison(comparison: Comparison, expected: list[tuple[int, int, int]]) -> None:
    """
    What a comparison says of offsets, partitions and times cuts the log; anything else does not.
    """
    assert cut(HUNDRED, comparison) == expected


def test_end_of_time_needs_the_promise() -> None:
    """
    Times end the read only under the user's promise, and as far behind as it says.
    """
    ten = (Comparison("timestamp", ">=", at(1020)), Comparison("timestamp", "<", at(1030)))

    assert cut(HUNDRED, *ten) == [(0, 19, LATEST)]
    assert cut(HUNDRED, *ten, delay=0) == [(0, 19, 31)]
    assert cut(HUNDRED, *ten, delay=5) == [(0, 19, 36)]


def test_given_borders_stay_where_they_are_narrower() -> None:
    """
    Filters never widen what the options say, and do not touch words that they do not narrow.
    """
    pushdown = FilterPushdown((Comparison("offset", ">=", 10), Comparison("offset", "<", 50)))

    assert pushdown.narrow({P0: 20}, {P0: 30}, HUNDRED) == ({P0: 20}, {P0: 30})
    assert pushdown.narrow({P0: 5}, {P0: LATEST}, HUNDRED) == ({P0: 10}, {P0: 50})


times = st.lists(st.integers(0, 60), max_size=40)
comparison = st.one_of(
    st.builds(
        Comparison,
        st.just("timestamp"),
        st.sampled_from(["=", "<", "<=", ">", ">="]),
        st.integers(0, 60_000).map(lambda us: at(us / 1000)),
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
        st.lists(st.integers(0, 60).map(at), min_size=1, max_size=3),
    ),
    st.builds(Comparison, st.just("partition"), st.sampled_from(["=", "<"]), st.integers(0, 2)),
)


def holds(one: Comparison, values: dict[str, Any]) -> bool:
    """
    Return what Spark would say of a record.
    """
    value = values[one.column]
    if one.operator == "in":
        return value in one.value
    if one.operator == "=":
        return bool(value == one.value)
    less = value <= one.value if "=" in one.operator else value < one.value
    more = value >= one.value if "=" in one.operator else value > one.value
    return less if one.operator.startswith("<") else more


@given(times, times, st.lists(comparison, max_size=4), st.integers(0, 9), st.booleans())
def test_no_wanted_record_is_cut_off(
    zero: list[int],
    one: list[int],
    comparisons: list[Comparison],
    first: int,
    promised: bool,
) -> None:
    """
    Whatever the order of times, every record that all filters let through lies in what is left;
    with the promise, if it is kept.
    """
    log = Log({P0: zero, P1: one}, first)
    delays = [max([0, *times[:i]]) - t for times in (zero, one) for i, t in enumerate(times)]

    left = cut(log, *comparisons, delay=max([0, *delays]) if promised else None)

    for tp, stamps in log.times.items():
        for offset, millis in enumerate(stamps, first):
            record = {"partition": tp.partition, "offset": offset, "timestamp": at(millis)}
            if all(holds(c, record) for c in comparisons):
                assert any(
                    p == tp.partition and start <= offset and (end == LATEST or offset < end)
                    for p, start, end in left
                )
