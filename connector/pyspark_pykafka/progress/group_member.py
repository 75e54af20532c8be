"""
The static member of a consumer group (KIP-345) through which one process commits its offsets.

The coordinator checks every commit: of two members with the same ``group.instance.id`` it accepts
only the later one, it removes a member that was silent for longer than its session timeout, and it
rejects commits of clients that are not members.
"""

from __future__ import annotations

import hashlib
import logging
from threading import Thread
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as KafkaPartition

from pyspark_pykafka.engines.error_mapping import FatalErrors, map_kafka_error, translating_errors
from pyspark_pykafka.errors import ProgressError, TimeoutExceededError
from pyspark_pykafka.offsets import TopicPartition, format_partitions
from pyspark_pykafka.progress.record import to_metadata
from pyspark_pykafka.progress.store import (
    AFTER_END_PREFIX,
    ClaimLostError,
    NoResponseError,
    format_topics,
)
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings.librdkafka_config import group_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark_pykafka.progress.record import Owner, ProgressRecord
    from pyspark_pykafka.settings import KafkaSettings

logger = logging.getLogger("pyspark_pykafka")

#: The ``group.instance.id`` of the process that writes progress.
INSTANCE = "pykafka-progress"

_AFTER_END_SUFFIX = "-after-end"
# Enough to tell the processes of one query apart.
_PROCESS_DIGITS = 8

_SESSION_TIMEOUT_MS = 10_000
# librdkafka's maximum: a member that has not polled within this time is removed, and this member
# reads no records that it would poll for.
_MAX_POLL_INTERVAL_MS = 86_400_000

_POLL_SECONDS = 0.1

_NOT_A_MEMBER = frozenset(
    {"FENCED_INSTANCE_ID", "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "_FATAL"}
)
_NO_TOPIC = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC"})
# The member reads no records, so errors that concern its topics do not matter.
_TOPIC_ERRORS = _NO_TOPIC | {"TOPIC_AUTHORIZATION_FAILED", "TOPIC_EXCEPTION"}


class _ClientReports:
    """
    The errors and the result of a commit that a client reports through its callbacks.

    Each client has its own reports, so a client that is still being closed cannot add to the
    reports of its successor.
    """

    def __init__(self) -> None:
        self.fatal = FatalErrors()
        self.expelled: KafkaError | None = None
        self.last_error: KafkaError | None = None
        self.commit_result: tuple[KafkaError | None, list[KafkaPartition]] | None = None

    def on_error(self, error: KafkaError) -> None:
        """
        Keep an error that the client meets in the background.
        """
        self.last_error = error
        if error.name() in _NOT_A_MEMBER:
            self.expelled = error
        else:
            self.fatal.record(error)

    def on_commit(self, error: KafkaError | None, positions: list[KafkaPartition]) -> None:
        """
        Keep the result of a commit.
        """
        self.commit_result = (error, positions)


class GroupMember:
    """
    A member from :meth:`join` to :meth:`close`, after which it can join again.

    Raises :class:`ClaimLostError` once the coordinator no longer knows it as the member.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        group: str,
        timeout_seconds: float,
        now: Callable[[], float],
    ) -> None:
        self._kafka = kafka
        self._group = group
        self._timeout_seconds = timeout_seconds
        self._now = now
        self._reports = _ClientReports()
        #: The client, while it has joined the group.
        self.consumer: Consumer | None = None
        #: The topics that the member has subscribed to.
        self.topics: frozenset[str] = frozenset()
        self._assigned_topics: frozenset[str] = frozenset()
        self._assignments = 0
        self._claimed_at = 0
        self._is_unanswered = False

    @property
    def session_ms(self) -> int:
        """
        The time after which the coordinator removes a silent member.
        """
        return int(self._kafka.get("session.timeout.ms", str(_SESSION_TIMEOUT_MS)))

    def client_id(self, owner: Owner) -> str:
        """
        Return the ``client.id`` of an owner: that of its query, and a suffix for its process.
        """
        if owner.process.startswith(AFTER_END_PREFIX):
            return self._query_client_id(owner) + _AFTER_END_SUFFIX
        process = hashlib.sha256(owner.process.encode()).hexdigest()[:_PROCESS_DIGITS]
        return f"{self._query_client_id(owner)}-{process}"

    def is_of_query(self, client_id: str, owner: Owner) -> bool:
        """
        Whether the client is a process of an owner's query.
        """
        return client_id.startswith(f"{self._query_client_id(owner)}-")

    def is_successor(self, client_id: str, owner: Owner) -> bool:
        """
        Whether the client is a successor of the owner: another process of the owner's query, but
        not one that only finishes up after the query has ended.
        """
        ignored = (self.client_id(owner), self._query_client_id(owner) + _AFTER_END_SUFFIX)
        return self.is_of_query(client_id, owner) and client_id not in ignored

    def _query_client_id(self, owner: Owner) -> str:
        return f"{self._kafka.get('client.id', 'pykafka')}-{owner.query}"

    def join(self, owner: Owner, topics: Iterable[str]) -> None:
        """
        Join the group, and return once the coordinator has assigned the member its partitions.

        While the member is subscribed to a topic, brokers neither expire the group's offsets for
        this topic (KIP-211) nor let anyone delete them.
        """
        self.topics = frozenset(topics)
        self._reports = _ClientReports()
        with translating_errors("connecting"):
            self.consumer = Consumer(self._config(owner))
        deadline = Deadline.after(self._timeout_seconds, self._now)
        self._subscribe(deadline)
        if self._assigned_topics != self.topics:
            # A static member that replaces another is given the assignment of the replaced member
            # without a rebalance (KIP-345), and the coordinator keeps that member's subscription.
            # So this member, the group's leader, joins again, which starts a rebalance. That is
            # needless if the topics differ only because some do not exist.
            self._subscribe(deadline)

    def _subscribe(self, deadline: Deadline) -> None:
        assert self.consumer is not None
        # The callback is called at each assignment. After the first assignment, a member gets
        # another one only when it has joined again: its session had expired, or partitions of its
        # topics were created or deleted. No records are ever read.
        self.consumer.subscribe(
            sorted(self.topics),
            on_assign=self._on_assign,
            on_revoke=_ignore_revocation,
            on_lost=_ignore_revocation,
        )
        before = self._assignments
        action = f"joining the consumer group {self._group}"
        while self._assignments == before:
            error = self._poll(_POLL_SECONDS, action)
            if error is not None:
                _raise_permanent_error(error, action)
            if deadline.expired:
                msg = (
                    f"{action}: no assignment from the coordinator within {self._timeout_seconds} s"
                )
                raise TimeoutExceededError(msg + self._reason())

    def start_claim(self) -> None:
        """
        Begin a claim, which is lost if the coordinator assigns partitions to the member again; from
        now on :meth:`keep_alive` checks this.
        """
        self._claimed_at = self._assignments

    def keep_alive(self) -> None:
        """
        Poll, as a member must, and check that the membership is still that of the claim.
        """
        self._poll(0, f"keeping the membership in the consumer group {self._group}")
        if self._assignments != self._claimed_at:
            msg = (
                f"the consumer group {self._group} was joined again: the session had expired, or "
                "partitions were created or deleted"
            )
            raise ClaimLostError(msg)

    def check_subscription(self, tps: Iterable[TopicPartition]) -> None:
        """
        Raise :class:`ClaimLostError` unless the member has subscribed to the partitions' topics.
        """
        others = {tp.topic for tp in tps} - self.topics
        if others:
            msg = (
                f"the member of the consumer group {self._group} is not subscribed to "
                f"{format_topics(others)}, which the query has begun to read"
            )
            raise ClaimLostError(msg)

    def commit(self, chunk: list[tuple[TopicPartition, ProgressRecord]]) -> None:
        """
        Commit the records in one request; those of partitions that no longer exist are skipped.
        """
        assert self.consumer is not None
        action = f"committing to the consumer group {self._group}"
        positions = [
            KafkaPartition(*tp, record.offset, metadata=to_metadata(record)) for tp, record in chunk
        ]
        self._reports.commit_result = None
        with translating_errors(action):
            # A synchronous commit has no timeout: it waits until there is a coordinator.
            self.consumer.commit(offsets=positions, asynchronous=True)
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

    def close(self) -> None:
        """
        Close the client; the static member stays in the group until its session expires.
        """
        consumer, self.consumer = self.consumer, None
        if consumer is None:
            return
        if self._is_unanswered:
            # close() waits until librdkafka has sent the commit twice more, each time with the
            # timeout kafka.request.timeout.ms. Nothing depends on that, since the next member
            # fences this one; so another thread calls close().
            self._is_unanswered = False
            Thread(target=consumer.close, name="pykafka-progress-close", daemon=True).start()
        else:
            consumer.close()

    def _poll(self, seconds: float, action: str) -> KafkaError | None:
        """
        Poll the client, and raise the errors of the membership and the login that it has reported.

        Any other error is returned; librdkafka goes on trying.
        """
        assert self.consumer is not None
        message = self.consumer.poll(seconds)
        error: KafkaError | None = None if message is None else message.error()
        if error is not None:
            self._reports.last_error = error
            self._raise_membership_error(error)
        if self._reports.expelled is not None:
            self._raise_membership_error(self._reports.expelled)
        self._reports.fatal.raise_pending(action)
        return error

    def _reason(self) -> str:
        error = self._reports.last_error
        return "" if error is None else f"; the last error: {error.str()} ({error.name()})"

    def _on_assign(self, consumer: Consumer, assigned: list[KafkaPartition]) -> None:
        self._assigned_topics = frozenset(partition.topic for partition in assigned)
        consumer.assign([])
        self._assignments += 1

    def _wait_for_commit(self, action: str) -> tuple[KafkaError | None, list[KafkaPartition]]:
        deadline = Deadline.after(self._timeout_seconds, self._now)
        while self._reports.commit_result is None:
            if deadline.expired:
                self._is_unanswered = True
                msg = f"{action}: no response within {self._timeout_seconds} s"
                raise NoResponseError(msg)
            self._poll(_POLL_SECONDS, action)
        return self._reports.commit_result

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
        config = group_config(self._kafka, self._group)
        session = self.session_ms
        return {
            **config,
            "client.id": self.client_id(owner),
            # In the protocol of KIP-848 the later of two processes would be rejected.
            "group.protocol": "classic",
            # A cooperative assignor would need incremental assignments, and has no benefit for the
            # only member of a group.
            "partition.assignment.strategy": "range",
            "group.instance.id": INSTANCE,
            "session.timeout.ms": str(session),
            "heartbeat.interval.ms": str(max(session // 4, 1)),
            "max.poll.interval.ms": str(_MAX_POLL_INTERVAL_MS),
            "error_cb": self._reports.on_error,
            "on_commit": self._reports.on_commit,
        }


def _raise_permanent_error(error: KafkaError, action: str) -> None:
    """
    Raise an error of the coordinator that another attempt to join would meet again.
    """
    is_local = error.code() < 0
    if is_local or error.name() in _TOPIC_ERRORS:
        return
    mapped = map_kafka_error(error, action)
    if not mapped.retriable:
        raise mapped


def _ignore_revocation(_: Consumer, __: list[KafkaPartition]) -> None:
    """
    Do nothing: the client never reads the partitions that the coordinator assigns to it.
    """
