"""
Finding the records that make a micro-batch fail, by running ever smaller parts of it.

Pure: what runs a part, and what becomes of the culprits, is the caller's. The unit is an offset:
rows that came of one record stay together.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from pyspark_pykafka.errors import check_values
from pyspark_pykafka.failures.restarts import is_transient
from pyspark_pykafka.retry import Backoff

if TYPE_CHECKING:
    from pyspark_pykafka.offsets import TopicPartition

logger = logging.getLogger("pyspark_pykafka")

_LEAST_PAUSE, _MOST_PAUSE = 0.5, 5.0

#: Runs a part of the batch; raises what the user's function raises.
Run = Callable[["RecordSet"], None]


@dataclass(frozen=True, slots=True)
class RecordSet:
    """
    Some records of a micro-batch: for each partition its offsets in order, a range or a list.
    """

    offsets: tuple[tuple[TopicPartition, Sequence[int]], ...]

    def __len__(self) -> int:
        return sum(len(each) for _, each in self.offsets)

    def halve(self) -> tuple[RecordSet, RecordSet]:
        """
        Return two parts of the same size, or one that has a record more.
        """
        return self.split(len(self) // 2)

    def split(self, count: int) -> tuple[RecordSet, RecordSet]:
        """
        Return the first so many records, and the others.
        """
        first, rest = [], []
        for tp, offsets in self.offsets:
            taken = min(count, len(offsets))
            count -= taken
            first.append((tp, offsets[:taken]))
            rest.append((tp, offsets[taken:]))
        return RecordSet(_filled(first)), RecordSet(_filled(rest))

    def single(self) -> tuple[TopicPartition, int]:
        """
        Return the one record of a part that has no more.
        """
        ((tp, offsets),) = self.offsets
        (offset,) = offsets
        return tp, offset


def _filled(
    offsets: list[tuple[TopicPartition, Sequence[int]]],
) -> tuple[tuple[TopicPartition, Sequence[int]], ...]:
    return tuple(each for each in offsets if len(each[1]) > 0)


@dataclass(frozen=True, slots=True)
class PoisonPolicy:
    """
    When records are set aside, and when the batch fails instead.

    At most ``max_records`` of a batch, and at most the share ``max_share`` of its records, are set
    aside; each only after it has failed ``attempts`` times by itself. So many records as
    ``outage_after`` that fail while nothing succeeds are taken for an outage; fewer always may be
    set aside. ``is_outage`` tells errors that no record can be blamed for; by default those of the
    connector that pass.

    Raises :class:`~pyspark_pykafka.errors.OptionsError` for values that make no sense.
    """

    max_records: int = 100
    max_share: float = 0.1
    attempts: int = 2
    outage_after: int = 3
    is_outage: Callable[[BaseException], bool] = is_transient

    def __post_init__(self) -> None:
        """
        Refuse what cannot be meant.
        """
        checks = (
            ("max_records", self.max_records >= 1, "at least 1"),
            ("max_share", 0 < self.max_share <= 1, "more than 0, at most 1"),
            ("attempts", self.attempts >= 1, "at least 1"),
            ("outage_after", self.outage_after >= 2, "at least 2"),
        )
        check_values(self, checks)

    def allowed(self, records: int) -> int:
        """
        Return how many records of a batch may be set aside.
        """
        always = self.outage_after - 1
        return min(self.max_records, max(always, int(records * self.max_share)))


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """
    A record that fails by itself, while others do not: its last error, and how often it was tried.
    """

    tp: TopicPartition
    offset: int
    error: Exception
    attempts: int


def bisect(
    whole: RecordSet,
    failure: Exception,
    run: Run,
    probe: Callable[[], None],
    *,
    policy: PoisonPolicy,
    sleep: Callable[[float], None] = time.sleep,
) -> list[FailedRecord]:
    """
    Run all of a batch that failed as a whole with ``failure``, but its culprits; return those.

    What has succeeded is not run again. ``probe`` raises if nothing can succeed at the moment; it
    is asked where no record has shown that. Raises what the last record failed with when the
    failures look like an outage, or there are more culprits than allowed.
    """
    return _Bisection(whole, run, probe, policy, sleep, failure).culprits()


@dataclass(slots=True)
class _Bisection:
    whole: RecordSet
    run: Run
    probe: Callable[[], None]
    policy: PoisonPolicy
    sleep: Callable[[float], None]
    last: Exception
    suspects: list[RecordSet] = field(default_factory=list)
    errors: dict[tuple[TopicPartition, int], Exception] = field(default_factory=dict)
    succeeded: int = 0

    def culprits(self) -> list[FailedRecord]:
        self._refuse_outage(self.last)
        # Held back to the end: its success shows that the others failed by themselves, and not
        # because by then nothing could succeed any more.
        control, rest = self.whole.split(1)
        if len(rest) > 0:
            self._narrow(rest)
        else:
            self.errors[control.single()] = self.last
            self.suspects.append(control)
        self._check_control(control)
        return self._confirmed()

    def _narrow(self, failing: RecordSet) -> None:
        """
        Halve a part that fails, or of which only a failure explains what is known.
        """
        # Each entry: a part, and whether it is known to fail without being run.
        waiting: list[tuple[RecordSet, bool]] = [(failing, True)]
        while waiting:
            part, bad = waiting.pop()
            if len(part) == 1:
                # Even one that must be it, by all that is known, is asked.
                if self._fails(part):
                    self._suspect(part)
                continue
            if not bad and not self._fails(part):
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
        except Exception as error:  # noqa: BLE001 (whatever the user's function raises is judged)
            self.last = error
            if len(part) == 1:
                self.errors[part.single()] = error
            self._refuse_outage(error)
            logger.info("%d records fail: %s", len(part), _first_line(error))
            return True
        self.succeeded += len(part)
        return False

    def _suspect(self, part: RecordSet) -> None:
        self.suspects.append(part)
        if not self.succeeded and len(self.suspects) >= self.policy.outage_after:
            self._give_up("every record fails, so it is none of them; is what they go to down?")
        if len(self.suspects) > self.policy.allowed(len(self.whole)):
            self._give_up("more records fail than the policy lets be set aside")

    def _check_control(self, control: RecordSet) -> None:
        if control not in self.suspects:
            if not self._fails(control):
                return
            self._suspect(control)
        self.probe()

    def _confirmed(self) -> list[FailedRecord]:
        """
        Try each suspect again: one that failed in a short outage succeeds now.
        """
        backoff = Backoff(_LEAST_PAUSE, _MOST_PAUSE)
        found = []
        for part in self.suspects:
            attempts, failing = 1, True
            while failing and attempts < self.policy.attempts:
                self.sleep(backoff.next_pause())
                failing, attempts = self._fails(part), attempts + 1
            if failing:
                found.append(FailedRecord(*part.single(), self.errors[part.single()], attempts))
        return found

    def _refuse_outage(self, error: Exception) -> None:
        if self.policy.is_outage(error):
            self._give_up("that is no record's fault")

    def _give_up(self, reason: str) -> NoReturn:
        logger.warning(
            "%s; the batch fails, and nothing is set aside: %s", reason, _first_line(self.last)
        )
        raise self.last


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".split("\n", 1)[0]
