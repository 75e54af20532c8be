"""
Comparison of the records that entered a micro-batch with those that left it.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from pyspark_pykafka.audit.report import (
    WHOLE_BATCH,
    AuditReport,
    Checksum,
    Finding,
    Verdict,
    compare,
    report,
)

if TYPE_CHECKING:
    import random

IDS = st.lists(st.integers(-(2**43), 2**43 - 1), unique=True, min_size=2, max_size=50)


def checksum(ids: list[int]) -> Checksum:
    """
    Return the checksum of records with these ids.
    """
    return reduce(Checksum.__add__, (Checksum(1, record_id) for record_id in ids), Checksum())


@given(IDS, st.randoms(use_true_random=False))
def test_the_order_and_the_exit_of_records_do_not_matter(
    ids: list[int], rng: random.Random
) -> None:
    """
    A batch is complete if all records have left, in any order, at the sink or at a filter.
    """
    mixed = list(ids)
    rng.shuffle(mixed)
    cut = rng.randrange(len(ids) + 1)

    finding = compare("t-0", checksum(ids), [checksum(mixed[:cut]), checksum(mixed[cut:])])

    assert finding.verdict is Verdict.COMPLETE
    assert str(finding) == f"t-0: complete, {len(ids)} records"


@given(IDS)
def test_planted_faults_are_found(ids: list[int]) -> None:
    """
    A missing, a duplicated and a replaced record are found. The difference of the checksums is the
    id of a missing record, and minus the id of a duplicated one.
    """
    first, second, *rest = ids
    lost = compare("t-0", checksum(ids), [checksum([first, *rest])])
    duplicated = compare("t-0", checksum(ids), [checksum([*ids, second])])
    replaced = compare("t-0", checksum(ids), [checksum([first, first, *rest])])

    assert (lost.verdict, lost.difference) == (Verdict.MISSING, second)
    assert (duplicated.verdict, duplicated.difference) == (Verdict.DUPLICATED, -second)
    assert replaced.verdict is Verdict.REPLACED


def test_an_empty_batch_is_complete() -> None:
    """
    A batch without records is complete.
    """
    assert compare(WHOLE_BATCH, Checksum(), [Checksum()]).verdict is Verdict.COMPLETE


def test_report_names_incomplete_partitions() -> None:
    """
    The text names only incomplete partitions, or else the whole batch.
    """
    good, bad = checksum([1, 2]), checksum([3, 4])
    entered = {WHOLE_BATCH: good + bad, "t-0": good, "t-1": bad}

    incomplete = report(
        "a", 7, entered, [{WHOLE_BATCH: good + checksum([3]), "t-0": good, "t-1": checksum([3])}]
    )
    complete = report("a", 8, entered, [entered])

    assert not incomplete.is_complete
    assert str(incomplete) == (
        "audit a, micro-batch 7: t-1: records are missing: 2 entered, 1 left"
    )
    assert complete.is_complete
    assert str(complete) == "audit a, micro-batch 8: the batch: complete, 4 records"


def test_partition_without_output_is_missing() -> None:
    """
    A partition that no exit has observed has lost its records.
    """
    entered = {WHOLE_BATCH: checksum([1]), "t-0": checksum([1])}

    audit_report = report("a", 1, entered, [{WHOLE_BATCH: Checksum()}])

    assert [finding.verdict for finding in audit_report.by_partition] == [Verdict.MISSING]


@given(IDS)
def test_records_deleted_from_the_log_may_have_entered(ids: list[int]) -> None:
    """
    A batch with exactly the records that are still in the log is complete. With other records the
    verdict is unknown if their number lies between the number in the log and the maximum; any other
    number is a certain mismatch.
    """
    in_log, lost = ids[:-1], ids[-1]
    max_entered = len(ids)

    def verdict(*at_sink: int) -> Verdict:
        return compare("t-0", checksum(in_log), [checksum([*at_sink])], max_entered).verdict

    assert verdict(*in_log) is Verdict.COMPLETE
    assert verdict(*ids) is verdict(*in_log[1:], lost) is Verdict.UNKNOWN
    assert verdict(*in_log[1:]) is Verdict.MISSING
    assert verdict(*ids, lost) is Verdict.DUPLICATED


def test_unknown_is_neither_complete_nor_a_mismatch() -> None:
    """
    A report with an unknown partition is neither complete nor a mismatch; one partition with a
    certain mismatch makes it a mismatch.
    """
    entered = {WHOLE_BATCH: checksum([1, 2]), "t-0": checksum([1]), "t-1": checksum([2])}
    at_sink = [{WHOLE_BATCH: checksum([1, 2, 3]), "t-0": checksum([1, 3]), "t-1": checksum([2])}]

    audit_report = report("a", 1, entered, at_sink, {WHOLE_BATCH: 4, "t-0": 3, "t-1": 1})
    worse = report("a", 1, entered, at_sink, {WHOLE_BATCH: 4, "t-0": 1, "t-1": 1})

    assert not audit_report.is_complete
    assert not audit_report.has_mismatch
    text = "t-0: unknown, since the log no longer holds all records that entered"
    assert text in str(audit_report)
    assert worse.has_mismatch


@given(st.lists(st.sampled_from(Verdict), min_size=1))
def test_a_mismatch_is_the_gravest_verdict(verdicts: list[Verdict]) -> None:
    """
    A report has a mismatch if any comparison has one; unknown outweighs complete.
    """
    first, *others = (Finding("t-0", verdict, 1, 1, 0) for verdict in verdicts)
    audit = AuditReport("flights", 0, first, tuple(others))
    mismatches = [v for v in verdicts if v not in {Verdict.COMPLETE, Verdict.UNKNOWN}]

    assert audit.has_mismatch is bool(mismatches)
    assert audit.is_complete is (set(verdicts) == {Verdict.COMPLETE})
    if mismatches:
        assert audit.verdict is mismatches[0]
    else:
        assert audit.verdict is (
            Verdict.UNKNOWN if Verdict.UNKNOWN in verdicts else Verdict.COMPLETE
        )
