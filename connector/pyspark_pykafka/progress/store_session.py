"""
One owner's dealings with a progress store: claim it, write what is new, keep the place.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark_pykafka.offsets import format_partitions
from pyspark_pykafka.progress.record import FailedAttempts, Owner, Record
from pyspark_pykafka.progress.store import (
    Claim,
    ClaimLostError,
    ProgressStore,
    advance,
    check_subject,
    touch_owner,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark_pykafka.offsets import Offsets, StreamOffset, TopicPartition

logger = logging.getLogger("pyspark_pykafka")


class StoreSession:
    """
    Brings a store up to what a query has done, and tells when another owner is there.

    Raises the store's errors; after any of them the same call can be made again.
    """

    def __init__(self, store: ProgressStore, run: str) -> None:
        self._store = store
        self._owner = Owner("", run, 0)
        self._claim: Claim | None = None
        self._named = False
        self._behind: Offsets = {}

    def record(self, done: StreamOffset) -> None:
        """
        Write what the store lacks of ``done``; if it lacks nothing, only keep the place.
        """
        claim = self._claimed(done)
        step = advance(claim.held, done, claim.owner)
        self._tell_behind(step.behind)
        if step.records:
            self._write(claim, step.records)
        elif not self._named:
            self._write(claim, touch_owner(claim.held, done, claim.owner))
        else:
            with self._noticing_loss():
                self._store.keep_alive()

    def note_failure(self, done: StreamOffset, cause: str) -> None:
        """
        Leave a word on what ended the batch after ``done``, for whoever reads it again.
        """
        assert done.query is not None
        claim = self._claimed(done)
        batch, held = done.query.batch + 1, sorted(claim.held.keys() & done.offsets.keys())
        if held:
            before = _attempts(claim.held, batch)
            failing = FailedAttempts(batch, before.attempts if before else 1, cause)
            stands = claim.held[held[0]]
            self._write(claim, {held[0]: replace(stands, owner=claim.owner, failing=failing)})

    def count_attempt(self, start: StreamOffset, end: StreamOffset) -> FailedAttempts | None:
        """
        Count one more attempt at a batch; return it, and what ended the one before if it is known.
        """
        assert end.query is not None
        claim = self._claimed(end)
        moved = [tp for tp in sorted(end.offsets) if end.offsets[tp] != start.offsets.get(tp, 0)]
        if not moved:
            return None
        tp = moved[0]
        known = claim.held.get(tp)
        before = _attempts(claim.held, end.query.batch) or FailedAttempts(end.query.batch, 1)
        failing = replace(before, attempts=before.attempts + 1)
        stands = known or Record(start.offsets.get(tp, 0), topic_id=end.topic_ids.get(tp.topic))
        self._write(claim, {tp: replace(stands, owner=claim.owner, failing=failing)})
        return failing

    def close(self) -> None:
        """
        Give the place up.
        """
        self._claim = None
        self._store.close()

    def _claimed(self, done: StreamOffset) -> Claim:
        assert done.query is not None
        if self._claim is None:
            asking = replace(self._owner, query=done.query.id)
            claim = self._store.claim(asking, {tp.topic for tp in done.offsets})
            check_subject(claim.held, done, claim.owner)
            self._claim, self._owner, self._named = claim, claim.owner, False
        return self._claim

    def _write(self, claim: Claim, records: Mapping[TopicPartition, Record]) -> None:
        with self._noticing_loss():
            self._store.write(records)
        claim.held.update(records)
        self._named = self._named or bool(records)

    @contextmanager
    def _noticing_loss(self) -> Iterator[None]:
        try:
            yield
        except ClaimLostError:
            self._claim = None
            raise

    def _tell_behind(self, behind: Offsets) -> None:
        fresh = behind.keys() - self._behind.keys()
        self._behind = behind
        if fresh:
            tp = min(fresh)
            logger.warning(
                "the progress store is ahead of this query for %s (at %d for %s), and is written "
                "again when the query has come so far; 'pykafka progress set' moves it back",
                *(format_partitions(fresh), behind[tp], tp),
            )


def _attempts(held: Mapping[TopicPartition, Record], batch: int) -> FailedAttempts | None:
    known = [r.failing for r in held.values() if r.failing is not None and r.failing.batch == batch]
    return max(known, key=lambda failing: failing.attempts, default=None)
