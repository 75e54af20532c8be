"""
How much a micro-batch takes: Spark's shares, caps per partition, and waiting for enough.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_pykafka.offsets import Offsets, TopicPartition
from pyspark_pykafka.source.admission import Admission, AdmissionPolicy

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))
ZERO = {P0: 0, P1: 0, P2: 0}

numbers = st.integers(0, 2**62)
pending = st.dictionaries(
    st.builds(TopicPartition, st.just("t"), st.integers(0, 50)), st.tuples(numbers, numbers)
)


class Clock:
    """
    A clock that is set by hand, in seconds.
    """

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def unseen(positions: Offsets) -> dict[TopicPartition, float]:
    """
    Fail: nobody looks at records as long as no limit counts bytes.
    """
    raise AssertionError(positions)


def taken(begin: Offsets, end: Offsets) -> list[int]:
    """
    Return how many offsets each partition gives.
    """
    return [end[tp] - begin[tp] for tp in sorted(end)]


@pytest.mark.parametrize(
    ("begin", "expected"),
    [(ZERO, [8, 1, 1]), ({P0: 8, P1: 1, P2: 1}, [9, 1, 0])],
    ids=["first batch", "second batch"],
)
def test_shares_are_sparks(begin: Offsets, expected: list[int]) -> None:
    """
    101, 11 and 1 records under a limit of 10 come as Spark's connector takes them (M07).
    """
    latest = {P0: 101, P1: 11, P2: 1}

    assert taken(begin, AdmissionPolicy(10).apply_limits(begin, latest, unseen)) == expected


@given(pending, st.integers(1, 2**63 - 1))
def test_nobody_starves_and_nothing_overflows(
    given_pending: dict[TopicPartition, tuple[int, int]], most: int
) -> None:
    """
    Each partition with records gives one at least, none more than it has; the sum is the limit,
    but for those single ones (M06).
    """
    begin = {tp: start for tp, (start, _) in given_pending.items()}
    latest = {tp: start + size for tp, (start, size) in given_pending.items()}

    took = taken(begin, AdmissionPolicy(most).apply_limits(begin, latest, unseen))

    has = [size for _, (_, size) in sorted(given_pending.items())]
    assert all(min(size, 1) <= got <= size for got, size in zip(took, has, strict=True))
    assert sum(took) <= max(most, most + len(took) - 1)
    assert sum(took) == sum(has) or sum(took) > most - len(took)


def test_hot_partition_is_capped_for_itself() -> None:
    """
    A cap per partition leaves the others alone, and combines with the one for all.
    """
    latest = {P0: 1000, P1: 30, P2: 5}

    assert taken(ZERO, AdmissionPolicy(None, 20).apply_limits(ZERO, latest, unseen)) == [20, 20, 5]
    assert taken(ZERO, AdmissionPolicy(9, 20).apply_limits(ZERO, latest, unseen)) == [4, 4, 1]


def test_went_back_is_left_to_the_planner() -> None:
    """
    An end that lies before the start is passed on as it is, never hidden behind a cap.
    """
    assert AdmissionPolicy(10, 10).apply_limits({P0: 50}, {P0: 20}, unseen) == {P0: 20}


def test_waits_until_there_is_enough() -> None:
    """
    After the first batch, which never waits, one comes only with enough records (M08).
    """
    admission = Admission(AdmissionPolicy(min_offsets=15, max_delay_seconds=5), unseen, Clock())

    assert admission.admit({P0: 0}, {P0: 3}) == {P0: 3}
    assert admission.admit({P0: 3}, {P0: 17}) is None
    assert admission.admit({P0: 3}, {P0: 18}) == {P0: 18}


def test_waits_no_longer_than_the_delay() -> None:
    """
    Few records go when the delay since the last batch is over, on a clock that nobody sets (M08).
    """
    clock = Clock()
    admission = Admission(AdmissionPolicy(min_offsets=15, max_delay_seconds=5), unseen, clock)
    admission.admit({P0: 0}, {P0: 3})

    clock.seconds += 4.9
    assert admission.admit({P0: 3}, {P0: 4}) is None
    clock.seconds += 0.2
    assert admission.admit({P0: 3}, {P0: 4}) == {P0: 4}
    assert admission.admit({P0: 4}, {P0: 5}) is None


def test_idle_topic_does_not_use_the_delay_up() -> None:
    """
    Asking while there is nothing is no batch: the first record after a long pause goes at once.
    """
    clock = Clock()
    admission = Admission(AdmissionPolicy(min_offsets=15, max_delay_seconds=5), unseen, clock)

    assert admission.admit({P0: 3}, {P0: 3}) == {P0: 3}
    assert admission.admit({P0: 3}, {P0: 4}) == {P0: 4}
    clock.seconds += 60
    assert admission.admit({P0: 4}, {P0: 4}) == {P0: 4}
    assert admission.admit({P0: 4}, {P0: 5}) == {P0: 5}


def test_enough_and_too_much_at_once() -> None:
    """
    The two limits combine: a batch that waited long enough is capped all the same (M09).
    """
    clock = Clock()
    policy = AdmissionPolicy(max_offsets=20, min_offsets=15, max_delay_seconds=5)
    admission = Admission(policy, unseen, clock)

    assert admission.admit({P0: 0}, {P0: 30}) == {P0: 20}
    assert admission.admit({P0: 20}, {P0: 30}) is None
    clock.seconds += 6
    assert admission.admit({P0: 20}, {P0: 30}) == {P0: 30}


def test_bytes_are_shared_by_what_records_take() -> None:
    """
    Each partition gives the same part of its bytes, at least one offset; one whose records nobody
    saw is taken for average.
    """
    policy = AdmissionPolicy(max_bytes=100_000)
    latest = {P0: 1000, P1: 500, P2: 100}

    def sizes(positions: Offsets) -> dict[TopicPartition, float]:
        assert set(positions) == set(ZERO)
        return {P0: 100.0, P1: 200.0}

    # 100 kB, 100 kB and 15 kB are there.
    assert taken(ZERO, policy.apply_limits(ZERO, latest, sizes)) == [465, 232, 46]
    assert policy.apply_limits(ZERO, {P0: 10, P1: 10, P2: 1}, sizes) == {P0: 10, P1: 10, P2: 1}


def test_bytes_of_few_partitions_stand_for_all() -> None:
    """
    Of thousands of partitions only the longest are looked at.
    """
    latest = {TopicPartition("t", n): 10 + n for n in range(5000)}
    begin = dict.fromkeys(latest, 0)
    looked: list[Offsets] = []

    def sizes(positions: Offsets) -> dict[TopicPartition, float]:
        looked.append(positions)
        return dict.fromkeys(positions, 10.0)

    ends = AdmissionPolicy(max_bytes=1_000_000).apply_limits(begin, latest, sizes)

    assert [len(one) for one in looked] == [64, 64]
    assert max(looked[0], key=lambda tp: tp.partition).partition == 4999
    assert sum(ends.values()) * 10 <= 1_000_000
    assert min(ends.values()) >= 1


def test_nothing_to_look_at_is_not_unlimited() -> None:
    """
    Where no record can be seen, as between markers, a usual size is assumed.
    """
    policy = AdmissionPolicy(max_bytes=1 << 20)

    assert policy.apply_limits({P0: 0}, {P0: 5000}, lambda _: {}) == {P0: 1024}
