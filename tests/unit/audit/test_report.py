"""
Comparing what entered a batch with what left it.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from pyspark_pykafka.audit.report import WHOLE_BATCH, Checksum, Verdict, compare, report

if TYPE_CHECKING:
    import random

IDS = st.lists(st.integers(-(2**43), 2**43 - 1), unique=True, min_size=2, max_size=50)


def tally(ids: list[int]) -> Checksum:
    """
    Return what is met when these ids go by.
    """
    return reduce(Checksum.__add__, (Checksum(1, each) for each in ids), Checksum())


@given(IDS, st.randoms(use_true_random=False))
def test_order_and_ways_do_not_matter(ids: list[int], rng: random.Random) -> None:
    """
    All records that leave, on whichever way, make a batch complete.
    """
    mixed = list(ids)
    rng.shuffle(mixed)
    cut = rng.randrange(len(ids) + 1)

    found = compare("t-0", tally(ids), [tally(mixed[:cut]), tally(mixed[cut:])])

    assert found.verdict is Verdict.COMPLETE
    assert str(found) == f"t-0: complete, {len(ids)} records"


@given(IDS)
def test_planted_faults_are_found(ids: list[int]) -> None:
    """
    A lost record, a doubled one, one in the place of another; the difference names a single one.
    """
    first, second, *rest = ids
    lost = compare("t-0", tally(ids), [tally([first, *rest])])
    doubled = compare("t-0", tally(ids), [tally([*ids, second])])
    exchanged = compare("t-0", tally(ids), [tally([first, first, *rest])])

    assert (lost.verdict, lost.difference) == (Verdict.MISSING, second)
    assert (doubled.verdict, doubled.difference) == (Verdict.DUPLICATED, -second)
    assert exchanged.verdict is Verdict.REPLACED


def test_an_empty_batch_is_complete() -> None:
    """
    Nothing entered, nothing left.
    """
    assert compare(WHOLE_BATCH, Checksum(), [Checksum()]).verdict is Verdict.COMPLETE


def test_a_report_names_the_partitions_that_are_wrong() -> None:
    """
    And only those; without any it speaks of the batch.
    """
    good, bad = tally([1, 2]), tally([3, 4])
    entered = {WHOLE_BATCH: good + bad, "t-0": good, "t-1": bad}

    found = report(
        "a", 7, entered, [{WHOLE_BATCH: good + tally([3]), "t-0": good, "t-1": tally([3])}]
    )
    well = report("a", 8, entered, [entered])

    assert not found.is_complete
    assert str(found) == ("audit a, micro-batch 7: t-1: records are missing: 2 entered, 1 left")
    assert well.is_complete
    assert str(well) == "audit a, micro-batch 8: the batch: complete, 4 records"


def test_a_partition_that_nothing_left_of_is_missing() -> None:
    """
    A way that says nothing of a partition let nothing of it go.
    """
    entered = {WHOLE_BATCH: tally([1]), "t-0": tally([1])}

    found = report("a", 1, entered, [{WHOLE_BATCH: Checksum()}])

    assert [finding.verdict for finding in found.by_partition] == [Verdict.MISSING]


@given(IDS)
def test_what_the_log_has_lost_since_may_have_entered(ids: list[int]) -> None:
    """
    Between what is held and what can have entered at most nothing can be told; beyond, it can.
    """
    held, lost = ids[:-1], ids[-1]
    most = len(ids)

    def verdict(*left: int) -> Verdict:
        return compare("t-0", tally(held), [tally([*left])], most).verdict

    assert verdict(*held) is Verdict.COMPLETE
    assert verdict(*ids) is verdict(*held[1:], lost) is Verdict.UNKNOWN
    assert verdict(*held[1:]) is Verdict.MISSING
    assert verdict(*ids, lost) is Verdict.DUPLICATED


def test_what_is_unclear_is_neither_complete_nor_wrong() -> None:
    """
    One partition that is wrong makes the batch so.
    """
    entered = {WHOLE_BATCH: tally([1, 2]), "t-0": tally([1]), "t-1": tally([2])}
    left = [{WHOLE_BATCH: tally([1, 2, 3]), "t-0": tally([1, 3]), "t-1": tally([2])}]

    found = report("a", 1, entered, left, {WHOLE_BATCH: 4, "t-0": 3, "t-1": 1})
    worse = report("a", 1, entered, left, {WHOLE_BATCH: 4, "t-0": 1, "t-1": 1})

    assert not found.is_complete
    assert not found.has_mismatch
    assert "t-0: unclear, since the log does not show any more what entered" in str(found)
    assert worse.has_mismatch
