"""
Finds the records that make a micro-batch fail, by running ever smaller parts of it.

Pure: the caller runs the parts and handles the failed records. The unit is an offset: rows made
from one record stay together.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from pyspark_pykafka.errors import check_values, error_text
from pyspark_pykafka.failures.restarts import is_transient
from pyspark_pykafka.failures.spark_errors import is_cancellation
from pyspark_pykafka.retry import Backoff

if TYPE_CHECKING:
    from pyspark_pykafka.offsets import TopicPartition

logger = logging.getLogger("pyspark_pykafka")

_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.5, 5.0

#: Runs a part of the batch; raises the error of the user's function.
Run = Callable[["RecordSet"], None]


@dataclass(frozen=True, slots=True)
class RecordSet:
    """
    Some records of a micro-batch: (partition, its offsets in ascending order) for each partition.

    The offsets are a range or an array of integers.
    """

    offsets: tuple[tuple[TopicPartition, Sequence[int]], ...]

    def __len__(self) -> int:
        return sum(len(offsets) for _, offsets in self.offsets)

    def halve(self) -> tuple[RecordSet, RecordSet]:
        """
        Return two parts whose sizes differ by at most one record.
        """
        return self.split(len(self) // 2)

    def split(self, count: int) -> tuple[RecordSet, RecordSet]:
        """
        Return the first ``count`` records, and the rest.
        """
        first, rest = [], []
        for tp, offsets in self.offsets:
            share = min(count, len(offsets))
            count -= share
            first.append((tp, offsets[:share]))
            rest.append((tp, offsets[share:]))
        return RecordSet(_non_empty(first)), RecordSet(_non_empty(rest))

    def single(self) -> tuple[TopicPartition, int]:
        """
        Return the only record, as (partition, offset).
        """
        ((tp, offsets),) = self.offsets
        (offset,) = offsets
        return tp, offset


def _non_empty(
    offsets: list[tuple[TopicPartition, Sequence[int]]],
) -> tuple[tuple[TopicPartition, Sequence[int]], ...]:
    return tuple(entry for entry in offsets if len(entry[1]) > 0)


@dataclass(frozen=True, slots=True)
class PoisonPolicy:
    """
    When failing records are set aside, and when the whole batch fails instead.

    A record is set aside after it has failed ``attempts`` times on its own. A batch fails if more
    than ``max_records`` records, or more than the fraction ``max_share`` of its records, fail; but
    up to ``outage_after - 1`` records may be set aside regardless of ``max_share``. If
    ``outage_after`` records have failed and none has succeeded, that counts as an outage, and the
    batch fails. It also fails with an error for which ``is_outage`` is true; by default those
    are the connector's own retriable errors.

    Raises :class:`~pyspark_pykafka.errors.OptionsError` for values out of range::

        PoisonPolicy(max_records=10, max_share=0.01, attempts=3)
    """

    max_records: int = 100
    max_share: float = 0.1
    attempts: int = 2
    outage_after: int = 3
    is_outage: Callable[[BaseException], bool] = is_transient

    def __post_init__(self) -> None:
        """
        Raise :class:`~pyspark_pykafka.errors.OptionsError` for values out of range.
        """
        checks = (
            ("max_records", self.max_records >= 1, "at least 1"),
            ("max_share", 0 < self.max_share <= 1, "more than 0, at most 1"),
            ("attempts", self.attempts >= 1, "at least 1"),
            ("outage_after", self.outage_after >= 2, "at least 2"),
        )
        check_values(self, checks)

    def max_failures(self, records: int) -> int:
        """
        Return how many records of a batch of ``records`` may be set aside.
        """
        always_allowed = self.outage_after - 1
        return min(self.max_records, max(always_allowed, int(records * self.max_share)))


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """
    A record that fails on its own while others succeed.

    ``error`` is its last error, ``attempts`` how often it was run on its own.
    """

    tp: TopicPartition
    offset: int
    error: Exception
    attempts: int


def bisect(
    batch: RecordSet,
    failure: Exception,
    run: Run,
    probe: Callable[[], None],
    *,
    policy: PoisonPolicy,
    sleep: Callable[[float], None] = time.sleep,
) -> list[FailedRecord]:
    """
    Return the failing records of a batch that failed with ``failure``; run all other records.

    A record is returned only if another record has succeeded since it last failed. To show this,
    the first and the last record are run at the end. If they fail too, a record that has already
    succeeded is run again, at most twice; no other record is run again after its success. If no
    record of the batch has succeeded, only ``probe`` is called: it runs no records, and raises an
    error if no record can succeed at the moment.

    Raises the last error if the failures look like an outage, if more records fail than ``policy``
    allows, or if the query is being stopped.
    """
    return _Bisection(batch, run, probe, policy, sleep, failure).failed_records()


@dataclass(slots=True)
class _Bisection:
    batch: RecordSet
    run: Run
    probe: Callable[[], None]
    policy: PoisonPolicy
    sleep: Callable[[float], None]
    last_error: Exception
    suspects: list[RecordSet] = field(default_factory=list)
    errors: dict[tuple[TopicPartition, int], Exception] = field(default_factory=dict)
    succeeded: int = 0
    # Records that are held back: the success of one shows that the sink works.
    controls: list[RecordSet] = field(default_factory=list)
    # A record that has succeeded, to be run again if no control is left.
    witness: RecordSet | None = None
    has_failed_last: bool = True

    def failed_records(self) -> list[FailedRecord]:
        self._raise_outage(self.last_error)
        rest = self._hold_controls_back()
        if len(rest) > 0:
            self._narrow(rest)
        else:
            self.errors[self.batch.single()] = self.last_error
            self.suspects.append(self.batch)
        self._check_sink()
        return self._confirmed()

    def _hold_controls_back(self) -> RecordSet:
        """
        Hold back the first and the last record if others are left; return the others.

        The two are far from each other, since poison records often lie side by side.
        """
        if len(self.batch) == 1:
            return RecordSet(())
        first, rest = self.batch.split(1)
        self.controls.append(first)
        if len(rest) > 1:
            rest, last = rest.split(len(rest) - 1)
            self.controls.append(last)
        return rest

    def _narrow(self, failing: RecordSet) -> None:
        """
        Halve a failing part again and again, until its failing records are found.

        If the first half succeeds, the second half must fail, and is halved without being run.
        """
        # Each entry: a part, and whether it is already known to fail.
        waiting: list[tuple[RecordSet, bool]] = [(failing, True)]
        while waiting:
            part, is_failing = waiting.pop()
            if len(part) == 1:
                # A single record is always run, even if only it can be the cause.
                if self._fails(part):
                    self._suspect(part)
                continue
            if not is_failing and not self._fails(part):
                continue
            first, second = part.halve()
            if self._fails(first):
                waiting.append((second, False))
                if len(first) == 1:
                    self._suspect(first)
                else:
                    waiting.append((first, True))
            else:
                waiting.append((second, True))

    def _fails(self, part: RecordSet) -> bool:
        try:
            self.run(part)
        except Exception as error:  # noqa: BLE001 (any error of the user's function counts)
            self.last_error, self.has_failed_last = error, True
            if len(part) == 1:
                self.errors[part.single()] = error
            self._raise_outage(error)
            logger.info("A part of %d records fails: %s", len(part), _first_line(error))
            return True
        self.succeeded += len(part)
        self.has_failed_last = False
        self.witness, _ = part.split(1)
        return False

    def _suspect(self, part: RecordSet) -> None:
        self.suspects.append(part)
        if not self.succeeded and len(self.suspects) >= self.policy.outage_after:
            self._give_up("Every record fails, which looks like an outage of the sink")
        if len(self.suspects) > self.policy.max_failures(len(self.batch)):
            self._give_up("More records fail than the policy allows")

    def _check_sink(self) -> None:
        """
        Raise an outage unless something has succeeded since the last suspect failed.

        Keeps one control for the end if the other one succeeds.
        """
        while self.suspects and self.has_failed_last and len(self.controls) > 1:
            self._run_control()
            if self.has_failed_last:
                self._run_control()
        if self.suspects and self.has_failed_last and not self.controls:
            self._require_success()

    def _run_control(self) -> None:
        control = self.controls.pop(0)
        if self._fails(control):
            self._suspect(control)

    def _confirmed(self) -> list[FailedRecord]:
        """
        Run each suspect again, and then the controls that are left.

        A record that failed in a short outage now succeeds. The others are only set aside if a
        record succeeds afterwards: otherwise the sink may have gone down in the meantime.
        """
        backoff = Backoff(_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)
        failed: list[FailedRecord] = []
        confirmed = 0
        while confirmed < len(self.suspects) or self.controls:
            for part in self.suspects[confirmed:]:
                failed += self._confirm(part, backoff)
                confirmed += 1
            if self.controls:
                self._run_control()
        if failed and self.has_failed_last:
            self._require_success()
        return failed

    def _confirm(self, part: RecordSet, backoff: Backoff) -> list[FailedRecord]:
        """
        Run a suspect until it succeeds; if it has failed often enough before that, return it.
        """
        attempts = 1
        while attempts < self.policy.attempts:
            self.sleep(backoff.next_pause())
            attempts += 1
            if not self._fails(part):
                return []
        return [FailedRecord(*part.single(), self.errors[part.single()], attempts)]

    def _require_success(self) -> None:
        """
        Raise an outage unless a record that has succeeded before succeeds again.

        If no record has succeeded yet, only the probe can show an outage.
        """
        self.probe()
        if self.witness is not None and self._fails(self.witness):
            self._give_up("Nothing succeeds any more, which looks like an outage of the sink")

    def _raise_outage(self, error: Exception) -> None:
        if is_cancellation(error):
            self._give_up("The query is being stopped")
        if self.policy.is_outage(error):
            self._give_up("The error is that of an outage")

    def _give_up(self, reason: str) -> NoReturn:
        logger.warning(
            "%s; the batch fails and no record is set aside: %s",
            *(reason, _first_line(self.last_error)),
        )
        raise self.last_error


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error_text(error)}".split("\n", 1)[0]
