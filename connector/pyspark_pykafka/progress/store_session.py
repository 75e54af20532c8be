"""
One process's use of a progress store: claim it, write new records, keep the claim alive.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark_pykafka.offsets import format_partitions
from pyspark_pykafka.progress.record import FailedAttempts, Owner, ProgressRecord
from pyspark_pykafka.progress.store import (
    ClaimLostError,
    ProgressStore,
    StoreClaim,
    advance,
    check_topics,
    is_recreated,
    record_for_new_owner,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark_pykafka.offsets import Offsets, StreamOffset, TopicPartition

    #: Returns the end offsets of partitions, without those that it does not know.
    EndOffsets = Callable[[Iterable[TopicPartition]], Offsets]

logger = logging.getLogger("pyspark_pykafka")


def unknown_end_offsets(_: Iterable[TopicPartition]) -> Offsets:
    """
    Return no end offset.
    """
    return {}


class StoreSession:
    """
    Writes a query's progress to a store, claiming the store when necessary.

    ``end_offsets`` returns the current end offsets of partitions, without those that it does not
    know. Methods raise its errors and the store's; after an error the same call can be repeated.
    """

    def __init__(
        self, store: ProgressStore, process: str, end_offsets: EndOffsets = unknown_end_offsets
    ) -> None:
        self._store = store
        self._end_offsets = end_offsets
        self._owner = Owner("", process, 0)
        self._claim: StoreClaim | None = None
        self._owner_written = False
        self._ahead: Offsets = {}
        # The attempt whose count may have been written, although the response was lost.
        self._unanswered: FailedAttempts | None = None

    def __repr__(self) -> str:
        return (
            f"StoreSession({self._store!r}, owner={self._owner}, claimed={self._claim is not None})"
        )

    @property
    def has_claimed(self) -> bool:
        """
        Whether the process has ever claimed the store: then its next claim fails if a later process
        of the query has claimed it meanwhile. A first claim replaces any process of the query.
        """
        return self._owner.epoch > 0

    def record(self, completed: StreamOffset) -> None:
        """
        Write the records of ``completed`` that the store lacks; if there are none, keep the claim
        alive.
        """
        claim = self._ensure_claim(completed)
        step = advance(claim.records, completed, claim.owner)
        lost = self._beyond_log(step.ahead)
        if lost:
            existing = {tp: record for tp, record in claim.records.items() if tp not in lost}
            step = advance(existing, completed, claim.owner)
        _log_moved_back(claim.records, step.records)
        self._log_ahead(step.ahead)
        if step.records:
            self._write(claim, step.records)
        elif not self._owner_written:
            self._write(claim, record_for_new_owner(claim.records, completed, claim.owner))
        else:
            with self._dropping_lost_claim():
                self._store.keep_alive()

    def record_failure(self, completed: StreamOffset, cause: str) -> None:
        """
        Record the error of the batch after ``completed``, for the process that retries the batch.
        """
        assert completed.query is not None
        claim = self._ensure_claim(completed)
        batch = completed.query.batch + 1
        tps = sorted(claim.records.keys() & completed.offsets.keys())
        if tps:
            previous = _attempts(claim.records, batch)
            failing = FailedAttempts(batch, previous.attempts if previous else 1, cause)
            record = claim.records[tps[0]]
            self._write(claim, {tps[0]: replace(record.owned_by(claim.owner), failing=failing)})

    def count_attempt(self, start: StreamOffset, end: StreamOffset) -> FailedAttempts | None:
        """
        Count one more attempt at a batch; return None if the batch has no offsets.

        The result's ``cause`` is the error of the previous attempt, if it is known.
        """
        assert end.query is not None
        claim = self._ensure_claim(end)
        recreated = end.recreated_topics(start)
        # An offset of the old topic would be ahead of everything that the new topic holds.
        starts = {tp: offset for tp, offset in start.offsets.items() if tp.topic not in recreated}
        advanced = [tp for tp in sorted(end.offsets) if end.offsets[tp] != starts.get(tp, 0)]
        if not advanced:
            return None
        tp = advanced[0]
        stored = claim.records.get(tp)
        previous = _attempts(claim.records, end.query.batch) or FailedAttempts(end.query.batch, 1)
        if previous == self._unanswered:
            self._unanswered = None
            return previous
        self._unanswered = failing = replace(previous, attempts=previous.attempts + 1)
        record = stored or ProgressRecord(starts.get(tp, 0), topic_id=end.topic_ids.get(tp.topic))
        self._write(claim, {tp: replace(record.owned_by(claim.owner), failing=failing)})
        self._unanswered = None
        return failing

    def close(self) -> None:
        """
        Release the claim.
        """
        self._claim = None
        self._store.close()

    def _ensure_claim(self, completed: StreamOffset) -> StoreClaim:
        assert completed.query is not None
        if self._claim is None:
            claimant = replace(self._owner, query=completed.query.id)
            claim = self._store.claim(claimant, {tp.topic for tp in completed.offsets})
            check_topics(claim.records, completed, claim.owner)
            self._claim, self._owner, self._owner_written = claim, claim.owner, False
        return self._claim

    def _write(self, claim: StoreClaim, records: Mapping[TopicPartition, ProgressRecord]) -> None:
        with self._dropping_lost_claim():
            self._store.write(records)
        claim.records.update(records)
        self._owner_written = self._owner_written or bool(records)

    @contextmanager
    def _dropping_lost_claim(self) -> Iterator[None]:
        try:
            yield
        except ClaimLostError:
            self._claim = None
            raise

    def _beyond_log(self, ahead: Offsets) -> set[TopicPartition]:
        """
        Return the partitions, among those newly ahead, that are recorded beyond the log's end.
        """
        new = ahead.keys() - self._ahead.keys()
        ends = self._end_offsets(sorted(new)) if new else {}
        return {tp for tp, end in ends.items() if ahead[tp] > end}

    def _log_ahead(self, ahead: Offsets) -> None:
        new = ahead.keys() - self._ahead.keys()
        self._ahead = ahead
        if new:
            tp = min(new)
            logger.warning(
                "The progress store is ahead of this query for %s (at %d for %s); it is not "
                "written until the query has caught up. 'pykafka progress set' moves it back",
                *(format_partitions(new), ahead[tp], tp),
            )


def _log_moved_back(
    stored: Mapping[TopicPartition, ProgressRecord],
    records: Mapping[TopicPartition, ProgressRecord],
) -> None:
    back = {
        tp: stored[tp].offset
        for tp, record in records.items()
        if tp in stored
        and stored[tp].offset > record.offset
        and not is_recreated(stored[tp], record.topic_id)
    }
    if back:
        tp = min(back)
        logger.warning(
            "The recorded progress moves back with the query for %s, from %d to %d for %s: the "
            "log ended before the recorded offset",
            *(format_partitions(back), back[tp], records[tp].offset, tp),
        )


def _attempts(
    records: Mapping[TopicPartition, ProgressRecord], batch: int
) -> FailedAttempts | None:
    attempts = [
        r.failing for r in records.values() if r.failing is not None and r.failing.batch == batch
    ]
    return max(attempts, key=lambda failing: failing.attempts, default=None)
