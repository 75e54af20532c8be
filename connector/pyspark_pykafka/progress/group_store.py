"""
Progress as the committed offsets of a consumer group, where Kafka's own tools find it.

The writer is the group's only static member (KIP-345). The coordinator checks every commit: of two
members with the same ``group.instance.id`` it accepts only the later one, it removes a member that
was silent for longer than its session, and it rejects commits of clients that are not members.
"""

from __future__ import annotations

import logging
import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as KafkaPartition

from pyspark_pykafka.engines.error_mapping import FatalErrors, map_kafka_error, translating_errors
from pyspark_pykafka.engines.librdkafka.admin import RetryingAdmin
from pyspark_pykafka.errors import ProgressError, TimeoutExceededError
from pyspark_pykafka.offsets import TopicPartition, format_partitions
from pyspark_pykafka.options import SubscribePattern
from pyspark_pykafka.progress.group_offsets import GroupOffsets
from pyspark_pykafka.progress.record import to_metadata
from pyspark_pykafka.progress.store import Claim, ClaimLostError, chunks, latest_owner, next_owner
from pyspark_pykafka.retry import Backoff, Deadline, retry_until
from pyspark_pykafka.settings.librdkafka_config import consumer_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Future

    from confluent_kafka.admin import AdminClient

    from pyspark_pykafka.engines.metadata import MetadataClient
    from pyspark_pykafka.progress.record import Owner, Record
    from pyspark_pykafka.progress.store import Records
    from pyspark_pykafka.settings import KafkaSettings

T = TypeVar("T")

logger = logging.getLogger("pyspark_pykafka")

_ALL = SubscribePattern("")

#: The ``group.instance.id`` of the process that writes progress.
INSTANCE = "pykafka-progress"

_SESSION_TIMEOUT_MS = 10_000
# A member that does not poll is removed; this one has nothing to poll for. The maximum in Kafka.
_MAX_POLL_INTERVAL_MS = 86_400_000

_POLL_SECONDS = 0.1
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.1, 1.0
_RECHECK_SECONDS = 0.5
_GRACE_SECONDS = 2.0

# A commit is one record batch of the offsets topic, by default at most 1 MB.
_MAX_COMMIT_SIZE = 1_000

_NOT_A_MEMBER = frozenset(
    {"FENCED_INSTANCE_ID", "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "_FATAL"}
)
_NO_TOPIC = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC"})


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
        self._admin = RetryingAdmin(kafka)
        self._fatal = FatalErrors()
        self._member: Consumer | None = None
        self._assignments = 0
        self._claimed_at = 0
        self._expelled: KafkaError | None = None
        self._commit_result: tuple[KafkaError | None, list[KafkaPartition]] | None = None

    def __repr__(self) -> str:
        return f"GroupStore({self._group!r}, is_member={self._member is not None})"

    def claim(self, owner: Owner, topics: Iterable[str]) -> Claim:
        """
        Join the group as its only writer, once it has no other member.
        """
        self.close()
        topics = sorted(topics)
        self._wait_until_free(owner)
        # Checked before joining: a replaced process must not expel its successor to find that out.
        next_owner(owner, latest_owner(self._stored(topics)))
        try:
            self._join(owner, topics)
            stored = self._stored(topics)
            owner = next_owner(owner, latest_owner(stored))
        except BaseException:
            self.close()
            raise
        self._claimed_at = self._assignments
        return Claim(owner, stored)

    def write(self, records: Mapping[TopicPartition, Record]) -> None:
        """
        Commit the records, in requests that the brokers accept.
        """
        for chunk in chunks(sorted(records.items()), _MAX_COMMIT_SIZE):
            self.keep_alive()
            self._retry(partial(self._commit, chunk))

    def keep_alive(self) -> None:
        """
        Poll, as a member must, and check that the membership is still that of the claim.
        """
        self._poll(0, f"keeping the membership in the consumer group {self._group}")
        if self._assignments != self._claimed_at:
            msg = f"the consumer group {self._group} was rejoined after the session had expired"
            raise ClaimLostError(msg)

    def read(self, topics: Iterable[str] | None = None) -> Records:
        """
        Return the committed offsets of the group; brokers return them by partition only.
        """
        if topics is None:
            return self._committed(self._metadata.assignment(_ALL).partitions)
        return self._committed(self._metadata.partitions_for(topics))

    def has_writer(self) -> bool:
        """
        Return whether a query records its progress in the group: a killed one counts until its
        session expires.
        """
        groups = self._retry(self._describe)
        members = groups[self._group].members if groups else []
        return any(member.group_instance_id == INSTANCE for member in members)

    def delete_records(self) -> None:
        """
        Delete the group, once it has no members.
        """
        self.close()
        self._wait_until_free(None)
        action = f"deleting the consumer group {self._group}"

        def delete(client: AdminClient, seconds: float) -> Mapping[str, Future[None]]:
            futures: Mapping[str, Future[None]] = client.delete_consumer_groups(
                [self._group], request_timeout=seconds
            )
            return futures

        self._retry(lambda: self._admin.call(delete, action))

    def close(self) -> None:
        """
        Close the client; the static member stays in the group until its session expires.
        """
        if self._member is not None:
            member, self._member = self._member, None
            member.close()

    def _stored(self, topics: Iterable[str]) -> Records:
        """
        Return the offsets of these topics, or of all topics if these have none.
        """
        return self.read(topics) or self.read()

    def _committed(self, tps: Sequence[TopicPartition]) -> Records:
        seconds = self._admin.timeout_seconds
        offsets = GroupOffsets(self._kafka, self._group, seconds, self._member, self._describe)
        with closing(offsets):
            return self._retry(lambda: offsets.fetch(tps))

    def _wait_until_free(self, owner: Owner | None) -> None:
        """
        Wait until the group has no members except an earlier process of the owner's query.

        A killed member stays until its session expires; one that stays longer is alive.
        """
        deadline = Deadline.after(self._session_ms() / 1000 + _GRACE_SECONDS, self._now)
        while members := self._retry(lambda: self._foreign_members(owner)):
            if deadline.expired:
                msg = (
                    f"the consumer group '{self._group}' is in use by {', '.join(members)}; only "
                    "one query at a time can record its progress there: stop the other one, or "
                    "set another kafka.group.id"
                )
                raise ProgressError("PROGRESS_OWNED", msg)
            self._sleep(_RECHECK_SECONDS)

    def _foreign_members(self, owner: Owner | None) -> list[str]:
        groups = self._describe()
        members = groups[self._group].members if groups else []
        return [
            f"{member.client_id} at {member.host.lstrip('/')}"
            for member in members
            if owner is None
            or (member.group_instance_id, member.client_id) != (INSTANCE, self._client_id(owner))
        ]

    def _describe(self) -> dict[str, Any]:
        return self._admin.call(
            lambda client, seconds: client.describe_consumer_groups(
                [self._group], request_timeout=seconds
            ),
            f"listing the members of the consumer group {self._group}",
        )

    def _join(self, owner: Owner, topics: list[str]) -> None:
        self._member, self._expelled = Consumer(self._config(owner)), None
        # Called at the first assignment and at every later one, which a member only gets after its
        # session has expired. Nothing is ever read.
        self._member.subscribe(
            topics,
            on_assign=self._on_assign,
            on_revoke=_ignore_revocation,
            on_lost=_ignore_revocation,
        )
        before = self._assignments
        deadline = Deadline.after(self._admin.timeout_seconds, self._now)
        action = f"joining the consumer group {self._group}"
        while self._assignments == before:
            self._poll(_POLL_SECONDS, action)
            if deadline.expired:
                msg = (
                    f"{action}: no assignment from the coordinator within "
                    f"{self._admin.timeout_seconds} s"
                )
                raise TimeoutExceededError(msg)

    def _poll(self, seconds: float, action: str) -> None:
        """
        Poll the client, and raise the errors that it has reported.
        """
        assert self._member is not None
        message = self._member.poll(seconds)
        if message is not None and message.error() is not None:
            self._raise_membership_error(message.error())
        if self._expelled is not None:
            self._raise_membership_error(self._expelled)
        self._fatal.raise_pending(action)

    def _on_error(self, error: KafkaError) -> None:
        if error.name() in _NOT_A_MEMBER:
            self._expelled = error
        else:
            self._fatal.record(error)

    def _on_assign(self, member: Consumer, _: list[KafkaPartition]) -> None:
        member.assign([])
        self._assignments += 1

    def _commit(self, chunk: list[tuple[TopicPartition, Record]]) -> None:
        assert self._member is not None
        action = f"committing to the consumer group {self._group}"
        positions = [
            KafkaPartition(*tp, record.offset, metadata=to_metadata(record)) for tp, record in chunk
        ]
        self._commit_result = None
        with translating_errors(action):
            # A synchronous commit has no timeout: it waits until there is a coordinator.
            self._member.commit(offsets=positions, asynchronous=True)
        error, results = self._wait_for_commit(action)
        if error is not None:
            self._raise_membership_error(error)
            raise map_kafka_error(error, action)
        deleted = []
        for result in results:
            if result.error is None:
                continue
            if result.error.name() not in _NO_TOPIC:
                self._raise_membership_error(result.error)
                raise map_kafka_error(result.error, action)
            deleted.append(TopicPartition(result.topic, result.partition))
        if deleted:
            logger.info(
                "No offsets are committed for partitions that no longer exist: %s",
                format_partitions(deleted),
            )

    def _wait_for_commit(self, action: str) -> tuple[KafkaError | None, list[KafkaPartition]]:
        deadline = Deadline.after(self._admin.timeout_seconds, self._now)
        while self._commit_result is None:
            if deadline.expired:
                # The commit may still arrive: a new claim makes sure that later commits follow it.
                msg = f"{action}: no response within {self._admin.timeout_seconds} s"
                raise ClaimLostError(msg)
            self._poll(_POLL_SECONDS, action)
        return self._commit_result

    def _on_commit(self, error: KafkaError | None, positions: list[KafkaPartition]) -> None:
        self._commit_result = (error, positions)

    def _retry(self, work: Callable[[], T]) -> T:
        """
        Retry while the coordinator moves, loads the group or does not respond.
        """
        deadline = Deadline.after(self._admin.timeout_seconds, self._now, self._sleep)
        backoff = Backoff(_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)
        return retry_until(work, deadline, backoff)

    def _raise_membership_error(self, error: KafkaError) -> None:
        """
        Raise the error if it concerns the membership; the caller handles all others.
        """
        if error.name() in _NOT_A_MEMBER:
            msg = f"no longer the member of the consumer group {self._group}: {error.str()}"
            raise ClaimLostError(msg)
        if error.name() == "INCONSISTENT_GROUP_PROTOCOL":
            msg = (
                f"the consumer group '{self._group}' is in use by consumers of another protocol; "
                "stop them, or set another kafka.group.id"
            )
            raise ProgressError("PROGRESS_OWNED", msg)
        if error.name() == "GROUP_AUTHORIZATION_FAILED":
            raise map_kafka_error(error, f"using the consumer group {self._group}")

    def _config(self, owner: Owner) -> dict[str, Any]:
        config = consumer_config(self._kafka, group_id=self._group)
        session = self._session_ms()
        return {
            **config,
            "client.id": self._client_id(owner),
            # In the protocol of KIP-848 the later of two processes would be rejected.
            "group.protocol": "classic",
            # A cooperative assignor would need incremental assignments; there is nothing to share.
            "partition.assignment.strategy": "range",
            "group.instance.id": INSTANCE,
            "session.timeout.ms": str(session),
            "heartbeat.interval.ms": str(max(session // 4, 1)),
            "max.poll.interval.ms": str(_MAX_POLL_INTERVAL_MS),
            "error_cb": self._on_error,
            "on_commit": self._on_commit,
        }

    def _session_ms(self) -> int:
        return int(self._kafka.get("session.timeout.ms", str(_SESSION_TIMEOUT_MS)))

    def _client_id(self, owner: Owner) -> str:
        return f"{self._kafka.get('client.id', 'pykafka')}-{owner.query}"


def _ignore_revocation(_: Consumer, __: list[KafkaPartition]) -> None:
    """
    Do nothing: no partition is ever assigned.
    """
