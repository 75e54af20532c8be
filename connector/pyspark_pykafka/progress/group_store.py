"""
Progress as the committed offsets of a consumer group, where Kafka's own tools find it.

The writer is the group's only member, so that the coordinator rejects the commits of all others.
"""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pyspark_pykafka.engines.first_contact import request_seconds
from pyspark_pykafka.engines.selection import group_backend
from pyspark_pykafka.errors import ProgressError
from pyspark_pykafka.progress.group_member import INSTANCE, GroupMember
from pyspark_pykafka.progress.group_offsets import GroupOffsets
from pyspark_pykafka.progress.store import (
    StoreClaim,
    chunks,
    fenced_error,
    latest_owner,
    next_owner,
)
from pyspark_pykafka.retry import Backoff, Deadline, retry_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark_pykafka.engines.group_contract import GroupDescription, MemberDescription
    from pyspark_pykafka.engines.metadata import MetadataClient
    from pyspark_pykafka.offsets import TopicPartition
    from pyspark_pykafka.progress.record import Owner, ProgressRecord
    from pyspark_pykafka.progress.store import Records
    from pyspark_pykafka.settings import KafkaSettings

T = TypeVar("T")


_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.1, 1.0
_RECHECK_SECONDS = 0.5
_GRACE_SECONDS = 2.0

# A commit is one record batch of the offsets topic, by default at most 1 MB.
_MAX_COMMIT_SIZE = 1_000


class GroupStore:
    """
    The store of ``progressStore=consumerGroup``.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        group: str,
        metadata: MetadataClient,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._kafka = kafka
        self._group = group
        self._metadata = metadata
        self._now = now
        self._sleep = sleep
        self._groups = group_backend(kafka)
        self._member = GroupMember(kafka, group, request_seconds(kafka), now)

    def __repr__(self) -> str:
        return f"GroupStore({self._group!r}, is_member={self._member.consumer is not None})"

    def claim(self, owner: Owner, topics: Iterable[str]) -> StoreClaim:
        """
        Join the group as its only writer, once it has no other member.

        Raises :class:`ProgressError` as :meth:`ProgressStore.claim` does.
        """
        self.close()
        topics = frozenset(topics)
        self._wait_until_free(owner)
        # The records and the members are checked before joining, since a replaced process must not
        # expel its successor. The records alone do not show the successor if they were deleted, or
        # overwritten by another client.
        next_owner(owner, latest_owner(self._stored(topics)))
        self._check_not_replaced(owner)
        try:
            self._member.join(owner, topics)
            stored = self._stored(topics)
            owner = next_owner(owner, latest_owner(stored))
        except BaseException:
            self.close()
            raise
        self._member.start_claim()
        return StoreClaim(owner, stored)

    def write(self, records: Mapping[TopicPartition, ProgressRecord]) -> None:
        """
        Commit the records, in requests of a size that the brokers accept.

        A claim covers the topics that it was made for; for others it counts as lost.
        """
        self._member.check_subscription(records)
        for chunk in chunks(sorted(records.items()), _MAX_COMMIT_SIZE):
            self.keep_alive()
            self._retry(partial(self._member.commit, chunk))

    def keep_alive(self) -> None:
        """
        Poll, as a member must, and check that the membership is still that of the claim.
        """
        self._member.keep_alive()

    def read(self, topics: Iterable[str] | None = None) -> Records:
        """
        Return the committed offsets of the topics, or of all topics of the cluster: librdkafka
        requests them only for given partitions.
        """
        if topics is None:
            return self._committed(self._metadata.all_partitions())
        return self._committed(self._metadata.partitions_for(topics))

    def has_writer(self) -> bool:
        """
        Return whether a query records its progress in the group; a killed query counts until its
        session expires.
        """
        return any(member.instance_id == INSTANCE for member in self._describe().members)

    def delete_records(self) -> None:
        """
        Delete the group, once it has no members.
        """
        self.close()
        self._wait_until_free(None)
        self._groups.delete(self._group)

    def close(self) -> None:
        """
        Close the client; the static member stays in the group until its session expires.
        """
        self._member.close()

    def _stored(self, topics: Iterable[str]) -> Records:
        """
        Return the offsets of these topics, or of all topics if these have none.
        """
        return self.read(topics) or self.read()

    def _committed(self, tps: Sequence[TopicPartition]) -> Records:
        seconds = request_seconds(self._kafka)
        offsets = GroupOffsets(
            self._kafka, self._group, seconds, self._member.consumer, self._describe
        )
        with closing(offsets):
            return self._retry(lambda: offsets.fetch(tps))

    def _wait_until_free(self, owner: Owner | None) -> None:
        """
        Wait until the group has no members except an earlier process of the owner's query.

        A killed member stays until its session expires; one that stays longer is alive.
        """
        deadline = Deadline.after(self._member.session_ms / 1000 + _GRACE_SECONDS, self._now)
        while members := self._foreign_members(owner):
            if deadline.expired:
                msg = (
                    f"the consumer group '{self._group}' is in use by {', '.join(members)}; only "
                    "one source of one query at a time can record its progress there: stop the "
                    "other query, or give each source a kafka.group.id of its own"
                )
                raise ProgressError("PROGRESS_OWNED", msg)
            self._sleep(_RECHECK_SECONDS)

    def _foreign_members(self, owner: Owner | None) -> list[str]:
        return [
            f"{member.client_id} at {member.host.lstrip('/')}"
            for member in self._describe().members
            if owner is None or not self._is_of_query(member, owner)
        ]

    def _is_of_query(self, member: MemberDescription, owner: Owner) -> bool:
        return member.instance_id == INSTANCE and self._member.is_of_query(member.client_id, owner)

    def _check_not_replaced(self, owner: Owner) -> None:
        """
        Raise :class:`ProgressError` if a process that has lost its claim has a successor.

        A process that has claimed nothing yet (epoch 0) is itself the successor of the member.
        """
        if owner.epoch == 0:
            return
        for member in self._describe().members:
            if self._member.is_successor(member.client_id, owner):
                raise fenced_error(
                    f"the member {member.client_id} at {member.host.lstrip('/')}", owner
                )

    def _describe(self) -> GroupDescription:
        return self._groups.describe(self._group)

    def _retry(self, work: Callable[[], T]) -> T:
        """
        Retry while the coordinator is moving, is loading the group or does not respond.
        """
        deadline = Deadline.after(request_seconds(self._kafka), self._now, self._sleep)
        backoff = Backoff(_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)
        return retry_until(work, deadline, backoff)
