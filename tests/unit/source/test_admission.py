"""
Admission of offsets to a micro-batch: Spark's shares, limits per partition, and minimum sizes.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.clock import Clock

from pyspark_pykafka.engines.byte_density import DensitySamples
from pyspark_pykafka.errors import AuthorizationError, PykafkaError, TimeoutExceededError
from pyspark_pykafka.offsets import Offsets, TopicPartition
from pyspark_pykafka.source.admission import Admission, AdmissionPolicy, FaultTolerantSampling

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))
ZERO = {P0: 0, P1: 0, P2: 0}

numbers = st.integers(0, 2**62)
backlogs = st.dictionaries(
    st.builds(TopicPartition, st.just("t"), st.integers(0, 50)), st.tuples(numbers, numbers)
)


def not_sampled(positions: Offsets) -> dict[TopicPartition, float]:
    """
    Fail: without a limit in bytes no record sizes are sampled.
    """
    raise AssertionError(positions)


def admitted(start: Offsets, end: Offsets) -> list[int]:
    """
    Return the number of offsets taken from each partition.
    """
    return [end[tp] - start[tp] for tp in sorted(end)]


@pytest.mark.parametrize(
    ("start", "expected"),
    [(ZERO, [8, 1, 1]), ({P0: 8, P1: 1, P2: 1}, [9, 1, 0])],
    ids=["first batch", "second batch"],
)
def test_shares_are_those_of_spark(start: Offsets, expected: list[int]) -> None:
    """
    101, 11 and 1 records under a limit of 10 are divided as by Spark's connector.
    """
    latest = {P0: 101, P1: 11, P2: 1}

    assert admitted(start, AdmissionPolicy(10).apply_limits(start, latest, not_sampled)) == expected


@given(backlogs, st.integers(1, 2**63 - 1))
def test_each_partition_gets_an_offset_within_the_limit(
    backlog: dict[TopicPartition, tuple[int, int]], limit: int
) -> None:
    """
    Each partition with records gives at least one, and no partition gives more than it has; the sum
    exceeds the limit only by these single offsets.
    """
    starts = {tp: start for tp, (start, _) in backlog.items()}
    latest = {tp: start + size for tp, (start, size) in backlog.items()}

    counts = admitted(starts, AdmissionPolicy(limit).apply_limits(starts, latest, not_sampled))

    has = [size for _, (_, size) in sorted(backlog.items())]
    assert all(min(size, 1) <= count <= size for count, size in zip(counts, has, strict=True))
    assert sum(counts) <= max(limit, limit + len(counts) - 1)
    assert sum(counts) == sum(has) or sum(counts) > limit - len(counts)


def test_limit_per_partition() -> None:
    """
    A limit per partition leaves other partitions unlimited, and combines with the total limit.
    """
    latest = {P0: 1000, P1: 30, P2: 5}

    assert admitted(ZERO, AdmissionPolicy(None, 20).apply_limits(ZERO, latest, not_sampled)) == [
        20,
        20,
        5,
    ]
    assert admitted(ZERO, AdmissionPolicy(9, 20).apply_limits(ZERO, latest, not_sampled)) == [
        4,
        4,
        1,
    ]


def test_end_before_start_is_kept_for_the_planner() -> None:
    """
    An end before the start is returned as it is: the planner reports it as data loss.
    """
    assert AdmissionPolicy(10, 10).apply_limits({P0: 50}, {P0: 20}, not_sampled) == {P0: 20}


def test_min_offsets_wait_for_more_records() -> None:
    """
    After the first batch, which never waits, a batch needs enough records.
    """
    admission = Admission(
        AdmissionPolicy(min_offsets=15, max_delay_seconds=5), not_sampled, Clock().now
    )

    assert admission.admit({P0: 0}, {P0: 3}) == {P0: 3}
    assert admission.admit({P0: 3}, {P0: 17}) is None
    assert admission.admit({P0: 3}, {P0: 18}) == {P0: 18}


def test_min_offsets_wait_no_longer_than_the_delay() -> None:
    """
    Few records are admitted once the delay since the last batch has passed.
    """
    clock = Clock()
    admission = Admission(
        AdmissionPolicy(min_offsets=15, max_delay_seconds=5), not_sampled, clock.now
    )
    admission.admit({P0: 0}, {P0: 3})

    clock.time += 4.9
    assert admission.admit({P0: 3}, {P0: 4}) is None
    clock.time += 0.2
    assert admission.admit({P0: 3}, {P0: 4}) == {P0: 4}
    assert admission.admit({P0: 4}, {P0: 5}) is None


def test_empty_batches_do_not_restart_the_delay() -> None:
    """
    Planning without new records is not a batch: the first record after a long pause is admitted.
    """
    clock = Clock()
    admission = Admission(
        AdmissionPolicy(min_offsets=15, max_delay_seconds=5), not_sampled, clock.now
    )

    assert admission.admit({P0: 3}, {P0: 3}) == {P0: 3}
    assert admission.admit({P0: 3}, {P0: 4}) == {P0: 4}
    clock.time += 60
    assert admission.admit({P0: 4}, {P0: 4}) == {P0: 4}
    assert admission.admit({P0: 4}, {P0: 5}) == {P0: 5}


def test_minimum_and_limit_combine() -> None:
    """
    A batch that has waited for its minimum or delay is still limited.
    """
    clock = Clock()
    policy = AdmissionPolicy(max_offsets=20, min_offsets=15, max_delay_seconds=5)
    admission = Admission(policy, not_sampled, clock.now)

    assert admission.admit({P0: 0}, {P0: 30}) == {P0: 20}
    assert admission.admit({P0: 20}, {P0: 30}) is None
    clock.time += 6
    assert admission.admit({P0: 20}, {P0: 30}) == {P0: 30}


def test_byte_limit_takes_the_same_fraction_of_each_partition() -> None:
    """
    Each partition gives the same fraction of its bytes, and at least one offset; a partition
    without a sample counts as average.
    """
    policy = AdmissionPolicy(max_bytes=100_000)
    latest = {P0: 1000, P1: 500, P2: 100}

    def sizes(positions: Offsets) -> dict[TopicPartition, float]:
        assert set(positions) == set(ZERO)
        return {P0: 100.0, P1: 200.0}

    # The backlog has 100 kB, 100 kB and 15 kB.
    assert admitted(ZERO, policy.apply_limits(ZERO, latest, sizes)) == [465, 232, 46]
    assert policy.apply_limits(ZERO, {P0: 10, P1: 10, P2: 1}, sizes) == {P0: 10, P1: 10, P2: 1}


def test_byte_limit_samples_only_the_longest_partitions() -> None:
    """
    Of thousands of partitions only the 64 with the largest backlogs are sampled.
    """
    latest = {TopicPartition("t", n): 10 + n for n in range(5000)}
    starts = dict.fromkeys(latest, 0)
    sampled: list[Offsets] = []

    def sizes(positions: Offsets) -> dict[TopicPartition, float]:
        sampled.append(positions)
        return dict.fromkeys(positions, 10.0)

    ends = AdmissionPolicy(max_bytes=1_000_000).apply_limits(starts, latest, sizes)

    assert [len(partitions) for partitions in sampled] == [64, 64]
    assert max(sampled[0], key=lambda tp: tp.partition).partition == 4999
    assert sum(ends.values()) * 10 <= 1_000_000
    assert min(ends.values()) >= 1


def test_byte_limit_without_a_sample_assumes_a_size() -> None:
    """
    If no record can be sampled, as among transaction markers, each record counts as 1 KiB.
    """
    policy = AdmissionPolicy(max_bytes=1 << 20)

    assert policy.apply_limits({P0: 0}, {P0: 5000}, lambda _: {}) == {P0: 1024}


class Sizes:
    """
    A log whose records have 100 bytes, and partitions that cannot be read.
    """

    def __init__(self, *failing: TopicPartition) -> None:
        self.failing = set(failing)
        self.error: PykafkaError = TimeoutExceededError("no response")
        self.requested: list[TopicPartition] = []

    def __call__(self, positions: Offsets) -> DensitySamples:
        self.requested += positions
        if not self.error.retriable and self.failing & set(positions):
            raise self.error
        densities = dict.fromkeys(positions.keys() - self.failing, 100.0)
        return DensitySamples(densities, dict.fromkeys(self.failing & positions.keys(), self.error))


def test_byte_limit_without_a_response_counts_the_partition_as_average() -> None:
    """
    A partition whose leader does not respond is left out of the samples; the query goes on.
    """
    sizes = Sizes(P1)
    policy = AdmissionPolicy(max_bytes=100_000)

    ends = policy.apply_limits(ZERO, {P0: 1000, P1: 500, P2: 500}, FaultTolerantSampling(sizes))

    assert admitted(ZERO, ends) == [500, 250, 250]
    assert sizes.requested.count(P1) == 1


def test_failed_sample_is_tried_again_after_a_pause() -> None:
    """
    Until a partition responds again, its last known size counts.
    """
    sizes, clock = Sizes(), Clock()
    sampling = FaultTolerantSampling(sizes, clock.now)
    sampling({P0: 0})
    sizes.failing = {P0, P1}

    assert sampling({P0: 0, P1: 0}) == {P0: 100.0}
    sizes.failing.clear()
    assert sampling({P0: 0, P1: 0}) == {P0: 100.0}
    clock.time += 31
    assert sampling({P0: 0, P1: 0}) == {P0: 100.0, P1: 100.0}


def test_many_partitions_are_sampled_together() -> None:
    """
    All partitions are sampled at once, so that each leader gets one request; a warning names those
    that failed, and they are not sampled again for a while.
    """
    partitions = [TopicPartition("t", n) for n in range(60)]
    sizes = Sizes(*partitions[:30])
    sampling = FaultTolerantSampling(sizes, Clock().now)

    for _ in range(2):
        assert sampling(dict.fromkeys(partitions, 0)) == dict.fromkeys(partitions[30:], 100.0)
    assert sizes.requested == [*partitions, *partitions[30:]]


def test_error_that_stays_ends_the_sampling() -> None:
    """
    A refused request is an error of the query.
    """
    sizes = Sizes(P0)
    sizes.error = AuthorizationError("denied")

    with pytest.raises(AuthorizationError):
        FaultTolerantSampling(sizes)({P0: 0})
