"""
Progress as the committed offsets of a consumer group, where Kafka's own tools look for it.

The writer is the group's one static member (KIP-345). The coordinator checks every commit: of two
members with one ``group.instance.id`` only the later is let through, a member that was silent for
longer than its session is none, and nobody who is no member can commit beside it.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as Position

from pyspark_pykafka.engines.error_mapping import FatalErrors, map_kafka_error, translating_errors
from pyspark_pykafka.engines.librdkafka.admin import RetryingAdmin
from pyspark_pykafka.errors import ProgressError, TimeoutExceededError
from pyspark_pykafka.offsets import TopicPartition, format_partitions
from pyspark_pykafka.options import SubscribePattern
from pyspark_pykafka.progress.record import from_metadata, to_metadata
from pyspark_pykafka.progress.store import Claim, ClaimLostError, chunks, newest, next_owner
from pyspark_pykafka.retry import Backoff, Deadline, retry_until
from pyspark_pykafka.settings.librdkafka_config import consumer_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from confluent_kafka.admin import AdminClient

    from pyspark_pykafka.engines.metadata import MetadataClient
    from pyspark_pykafka.progress.record import Owner, Record
    from pyspark_pykafka.progress.store import Records
    from pyspark_pykafka.settings import KafkaSettings

T = TypeVar("T")

logger = logging.getLogger("pyspark_pykafka")

_ALL = SubscribePattern("")

#: The ``group.instance.id`` of whoever writes progress.
INSTANCE = "pykafka-progress"

_SESSION_TIMEOUT_MS = 10_000
# A member that never polls is none; this one has nothing to poll for. The most that Kafka takes.
_MAX_POLL_INTERVAL_MS = 86_400_000

_POLL_SECONDS = 0.1
_LEAST_PAUSE, _MOST_PAUSE = 0.1, 1.0
_LOOK_AGAIN_SECONDS = 0.5
_GRACE_SECONDS = 2.0

# A commit is one record batch of the offsets' topic, which is 1 MB at most by default.
_MOST_PER_COMMIT = 1_000
_MOST_PER_QUESTION = 5_000

_NOT_A_MEMBER = frozenset(
    {"FENCED_INSTANCE_ID", "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "_FATAL"}
)
_NO_TOPIC = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC"})


class GroupStore:
    """
    The store behind ``progressStore=consumerGroup``.
    """

    def __init__(self, kafka: KafkaSettings, group: str, broker: MetadataClient) -> None:
        self._kafka = kafka
        self._group = group
        self._broker = broker
        self._admin = RetryingAdmin(kafka)
        self._fatal = FatalErrors()
        self._member: Consumer | None = None
        self._assignments = 0
        self._claimed_at = 0
        self._expelled: KafkaError | None = None
        self._answer: tuple[KafkaError | None, list[Position]] | None = None

    def claim(self, owner: Owner, topics: Iterable[str]) -> Claim:
        """
        Join the group as its one writer, once nobody else is in it.
        """
        self.close()
        topics = sorted(topics)
        self._wait_until_free(owner)
        # One that was replaced must not replace its successor only to find that out.
        next_owner(owner, newest(self._held(topics)))
        try:
            self._join(owner, topics)
            held = self._held(topics)
            owner = next_owner(owner, newest(held))
        except BaseException:
            self.close()
            raise
        self._claimed_at = self._assignments
        return Claim(owner, held)

    def write(self, records: Mapping[TopicPartition, Record]) -> None:
        """
        Commit the records, in portions that the brokers take.
        """
        for portion in chunks(sorted(records.items()), _MOST_PER_COMMIT):
            self.keep_alive()
            self._retrying(partial(self._commit, portion))

    def keep_alive(self) -> None:
        """
        Let the client do what a member must, and see whether it still is the one that claimed.
        """
        self._serve(0, f"holding the consumer group {self._group}")
        if self._assignments != self._claimed_at:
            msg = f"the consumer group {self._group} was joined anew, after a silence"
            raise ClaimLostError(msg)

    def read(self, topics: Iterable[str] | None = None) -> Records:
        """
        Return the committed offsets of the group; brokers tell them by partition only.
        """
        if topics is None:
            return self._committed(self._broker.assignment(_ALL).partitions)
        return self._committed(self._broker.partitions_for(topics))

    def delete_records(self) -> None:
        """
        Delete the group, once nobody is in it.
        """
        self.close()
        self._wait_until_free(None)
        doing = f"deleting the consumer group {self._group}"

        def delete(client: AdminClient, seconds: float) -> Mapping[str, Future[None]]:
            deleted: Mapping[str, Future[None]] = client.delete_consumer_groups(
                [self._group], request_timeout=seconds
            )
            return deleted

        self._retrying(lambda: self._admin.call(delete, doing))

    def close(self) -> None:
        """
        Leave; a static member stays in the group until its session is over, in nobody's way.
        """
        if self._member is not None:
            member, self._member = self._member, None
            member.close()

    def _held(self, topics: Iterable[str]) -> Records:
        """
        Return the offsets of the topics, or if there are none those of all.
        """
        return self.read(topics) or self.read()

    def _committed(self, tps: Sequence[TopicPartition]) -> Records:
        # Not the admin client's list_consumer_group_offsets(): it crashes the process when the
        # coordinator has moved or loads the group (librdkafka#5040, seen with 2.16).
        asking = self._member or Consumer(consumer_config(self._kafka, group_id=self._group))
        try:
            return self._retrying(lambda: self._ask_committed(asking, tps))
        finally:
            if asking is not self._member:
                asking.close()

    def _ask_committed(self, asking: Consumer, tps: Sequence[TopicPartition]) -> Records:
        doing = f"asking for the offsets of the consumer group {self._group}"
        records: Records = {}
        for portion in chunks(tps, _MOST_PER_QUESTION):
            positions = [Position(*tp) for tp in portion]
            with translating_errors(doing):
                records.update(
                    _records(asking.committed(positions, self._admin.timeout_seconds), doing)
                )
        return records

    def _wait_until_free(self, owner: Owner | None) -> None:
        """
        Wait until no member but a former process of the owner's query is in the group.

        One that was killed stays for its session's time, so only a longer stay is taken for life.
        """
        deadline = Deadline.after(self._session_ms() / 1000 + _GRACE_SECONDS)
        while strangers := self._retrying(lambda: self._strangers(owner)):
            if deadline.expired:
                msg = (
                    f"the consumer group '{self._group}' is in use by {', '.join(strangers)}; "
                    "one query at a time can keep its progress there: stop the other, or set "
                    "another kafka.group.id"
                )
                raise ProgressError("PROGRESS_OWNED", msg)
            time.sleep(_LOOK_AGAIN_SECONDS)

    def _strangers(self, owner: Owner | None) -> list[str]:
        answers = self._admin.call(
            lambda client, seconds: client.describe_consumer_groups(
                [self._group], request_timeout=seconds
            ),
            f"asking who is in the consumer group {self._group}",
        )
        members = answers[self._group].members if answers else []
        return [
            f"{member.client_id} at {member.host.lstrip('/')}"
            for member in members
            if owner is None
            or (member.group_instance_id, member.client_id) != (INSTANCE, self._client_id(owner))
        ]

    def _join(self, owner: Owner, topics: list[str]) -> None:
        self._member, self._expelled = Consumer(self._config(owner)), None
        # Told at the first assignment and at every later one, which only a member that was taken
        # for dead gets; nothing is ever read.
        self._member.subscribe(
            topics, on_assign=self._assigned, on_revoke=_no_more, on_lost=_no_more
        )
        before, deadline = self._assignments, Deadline.after(self._admin.timeout_seconds)
        doing = f"joining the consumer group {self._group}"
        while self._assignments == before:
            self._serve(_POLL_SECONDS, doing)
            if deadline.expired:
                msg = (
                    f"{doing}: its coordinator did not let us in within "
                    f"{self._admin.timeout_seconds} s"
                )
                raise TimeoutExceededError(msg)

    def _serve(self, seconds: float, doing: str) -> None:
        """
        Let the client tell what has happened.
        """
        assert self._member is not None
        message = self._member.poll(seconds)
        if message is not None and message.error() is not None:
            self._judge(message.error())
        if self._expelled is not None:
            self._judge(self._expelled)
        self._fatal.raise_pending(doing)

    def _told(self, error: KafkaError) -> None:
        if error.name() in _NOT_A_MEMBER:
            self._expelled = error
        else:
            self._fatal.record(error)

    def _assigned(self, member: Consumer, _: list[Position]) -> None:
        member.assign([])
        self._assignments += 1

    def _commit(self, portion: list[tuple[TopicPartition, Record]]) -> None:
        assert self._member is not None
        doing = f"committing to the consumer group {self._group}"
        positions = [
            Position(*tp, record.offset, metadata=to_metadata(record)) for tp, record in portion
        ]
        self._answer = None
        with translating_errors(doing):
            # A synchronous commit has no time-out: it waits until there is a coordinator.
            self._member.commit(offsets=positions, asynchronous=True)
        error, answers = self._wait_for_commit(doing)
        if error is not None:
            self._judge(error)
            raise map_kafka_error(error, doing)
        gone = []
        for answer in answers:
            if answer.error is None:
                continue
            if answer.error.name() not in _NO_TOPIC:
                self._judge(answer.error)
                raise map_kafka_error(answer.error, doing)
            gone.append(TopicPartition(answer.topic, answer.partition))
        if gone:
            logger.info(
                "the brokers keep no offsets of %s, which are gone", format_partitions(gone)
            )

    def _wait_for_commit(self, doing: str) -> tuple[KafkaError | None, list[Position]]:
        deadline = Deadline.after(self._admin.timeout_seconds)
        while self._answer is None:
            if deadline.expired:
                # It may be on its way for ever so long, so what comes next must come after it.
                msg = f"{doing}: no answer within {self._admin.timeout_seconds} s"
                raise ClaimLostError(msg)
            self._serve(_POLL_SECONDS, doing)
        return self._answer

    def _committed_to(self, error: KafkaError | None, positions: list[Position]) -> None:
        self._answer = (error, positions)

    def _retrying(self, work: Callable[[], T]) -> T:
        """
        Try again for a time while the coordinator moves, loads the group or does not answer.
        """
        deadline = Deadline.after(self._admin.timeout_seconds)
        return retry_until(work, deadline, Backoff(_LEAST_PAUSE, _MOST_PAUSE))

    def _judge(self, error: KafkaError) -> None:
        """
        Raise what an error says about the membership; others the caller knows better.
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
            # In KIP-848's protocol the later of two processes is the one that is refused.
            "group.protocol": "classic",
            # A cooperative one would have to be answered in another way; there is nothing to share.
            "partition.assignment.strategy": "range",
            "group.instance.id": INSTANCE,
            "session.timeout.ms": str(session),
            "heartbeat.interval.ms": str(max(session // 4, 1)),
            "max.poll.interval.ms": str(_MAX_POLL_INTERVAL_MS),
            "error_cb": self._told,
            "on_commit": self._committed_to,
        }

    def _session_ms(self) -> int:
        return int(self._kafka.get("session.timeout.ms", str(_SESSION_TIMEOUT_MS)))

    def _client_id(self, owner: Owner) -> str:
        return f"{self._kafka.get('client.id', 'pykafka')}-{owner.query}"


def _no_more(_: Consumer, __: list[Position]) -> None:
    """
    There is nothing to give back: nothing was taken.
    """


def _records(found: list[Position], doing: str) -> Iterator[tuple[TopicPartition, Record]]:
    for position in found:
        if position.error is not None:
            raise map_kafka_error(position.error, doing)
        if position.offset >= 0:
            record = from_metadata(position.offset, position.metadata)
            yield TopicPartition(position.topic, position.partition), record
