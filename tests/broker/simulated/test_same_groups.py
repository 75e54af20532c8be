"""
Consumer groups behave the same on the simulated cluster and on a real broker.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from pyspark_pykafka.engines.metadata import MetadataClient
from pyspark_pykafka.engines.selection import group_backend, metadata_backend
from pyspark_pykafka.errors import KafkaClientError
from pyspark_pykafka.offsets import TopicPartition as Tp
from pyspark_pykafka.progress.group_store import GroupStore
from pyspark_pykafka.progress.record import Owner, ProgressRecord
from pyspark_pykafka.progress.store import ClaimLostError
from pyspark_pykafka.retry import RetryPolicy
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.testing import Record
from pyspark_pykafka.testing.plugin import unique_name
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.testing.client import KafkaAccess

SECONDS = 30.0
#: The operations on a group that every user may perform on a cluster without access control.
ALL_OPERATIONS = frozenset({"READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"})


def test_offsets_are_committed(cluster: KafkaAccess, topic: str) -> None:
    """
    A committed offset is returned with its metadata, even to another client.
    """
    config = group_config(cluster, topic)
    with closing(Consumer(config)) as first:
        first.commit(offsets=[TopicPartition(topic, 0, 7, metadata="seven")], asynchronous=False)
    with closing(Consumer(config)) as second:
        (committed,) = second.committed([TopicPartition(topic, 0)], SECONDS)
    assert (committed.offset, committed.metadata) == (7, "seven")


def group_config(cluster: KafkaAccess, group: str, **settings: Any) -> dict[str, Any]:
    """
    Return the settings of a consumer group's member; keywords have underscores in place of dots.
    """
    return {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "log_level": 0,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }


def poll_until(consumer: Consumer, blocker: Callable[[list[bytes]], str | None]) -> None:
    """
    Read values until ``blocker``, which returns the reason to go on reading, returns None.
    """
    polled: list[bytes] = []

    def poll() -> str | None:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None
            polled.append(message.value())
        return blocker(polled)

    wait_until(poll, SECONDS)


def test_members_share_partitions(cluster: KafkaAccess, request: pytest.FixtureRequest) -> None:
    """
    A second member gets half of the partitions; when it has left, the first one gets all again.
    """
    name = cluster.create_topic(unique_name(request.node.name), 2)
    config = group_config(cluster, name)

    def owns(consumer: Consumer, partitions: int) -> str | None:
        owned = len(consumer.assignment())
        return None if owned == partitions else f"{owned} instead of {partitions}"

    with closing(Consumer(config)) as first:
        first.subscribe([name])
        poll_until(first, lambda _: owns(first, 2))
        with closing(Consumer(config)) as second:
            second.subscribe([name])

            def shared(_: list[bytes]) -> str | None:
                second.poll(0.05)
                return owns(first, 1) or owns(second, 1)

            poll_until(first, shared)
        poll_until(first, lambda _: owns(first, 2))


def test_a_member_continues_at_the_committed_offset(cluster: KafkaAccess, topic: str) -> None:
    """
    A member reads from the offset that the group has committed.
    """
    cluster.produce(topic, [Record(b"a"), Record(b"b")])
    for expected in (b"a", b"b"):
        with closing(Consumer(group_config(cluster, topic))) as consumer:
            consumer.subscribe([topic])
            poll_until(consumer, lambda polled: None if polled else "no record")
            position = consumer.position([TopicPartition(topic, 0)])[0].offset
            assert position >= 1
            offset = 1 if expected == b"a" else 2
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    with closing(Consumer(group_config(cluster, topic))) as consumer:
        assert consumer.committed([TopicPartition(topic, 0)], SECONDS)[0].offset == 2


def test_groups_are_described_and_protected(cluster: KafkaAccess, topic: str) -> None:
    """
    A group with a static member is described, cannot be deleted, and rejects others' commits.
    """
    admin = cluster.admin()
    position = TopicPartition(topic, 0, 5)
    with closing(Consumer(group_config(cluster, topic, group_instance_id="only"))) as consumer:
        consumer.subscribe([topic])
        poll_until(consumer, lambda _: None if consumer.assignment() else "no assignment")
        consumer.commit(offsets=[position], asynchronous=False)
        group = admin.describe_consumer_groups([topic])[topic].result(SECONDS)
        assert group.state.name == "STABLE"
        assert [member.group_instance_id for member in group.members] == ["only"]
        with pytest.raises(KafkaException) as raised:
            admin.delete_consumer_groups([topic])[topic].result(SECONDS)
        assert raised.value.args[0].name() == "NON_EMPTY_GROUP"
    with closing(Consumer(group_config(cluster, topic))) as outsider:
        with pytest.raises(KafkaException) as raised:
            outsider.commit(offsets=[position], asynchronous=False)
        assert raised.value.args[0].name() == "UNKNOWN_MEMBER_ID"


def test_a_closed_static_member_stays_until_its_session_expires(
    cluster: KafkaAccess, topic: str
) -> None:
    """
    A static member that has closed stays in the group until its session expires; then the group can
    be deleted.
    """
    admin = cluster.admin()
    config = group_config(cluster, topic, group_instance_id="only", session_timeout_ms=1500)
    with closing(Consumer(config)) as consumer:
        consumer.subscribe([topic])
        poll_until(consumer, lambda _: None if consumer.assignment() else "no assignment")
    description = admin.describe_consumer_groups([topic])[topic].result(SECONDS)
    assert len(description.members) == 1

    def blocker() -> str | None:
        group = admin.describe_consumer_groups([topic])[topic].result(SECONDS)
        return f"{len(group.members)} members" if group.members else None

    wait_until(blocker, SECONDS)
    admin.delete_consumer_groups([topic])[topic].result(SECONDS)


def test_the_connector_describes_and_deletes_groups(cluster: KafkaAccess, topic: str) -> None:
    """
    The connector describes and lists a group. It can delete the group only once the group has no
    member. A missing group has no members, and the user's operations on it are returned.
    """
    groups = group_backend(KafkaSettings.of({"bootstrap.servers": cluster.bootstrap}))
    missing = groups.describe(topic, include_operations=True)
    config = group_config(cluster, topic, group_instance_id="only", session_timeout_ms=1500)
    with closing(Consumer({**config, "client.id": "reader"})) as consumer:
        consumer.subscribe([topic])
        poll_until(consumer, lambda _: None if consumer.assignment() else "no assignment")
        described = groups.describe(topic, include_operations=True)
        (member,) = described.members
        assert (member.client_id, member.instance_id) == ("reader", "only")
        assert topic in groups.list_groups()
        with pytest.raises(KafkaClientError, match="NON_EMPTY_GROUP"):
            groups.delete(topic)

    wait_until(lambda: "a member" if groups.describe(topic).members else None, SECONDS)
    groups.delete(topic)
    assert topic not in groups.list_groups()
    assert (missing.members, groups.describe(topic).members) == ((), ())
    assert missing.operations == described.operations == ALL_OPERATIONS


def group_store(cluster: KafkaAccess, group: str) -> GroupStore:
    """
    Return one process's progress store.
    """
    kafka = KafkaSettings.of({"bootstrap.servers": cluster.bootstrap, "session.timeout.ms": "1500"})
    metadata = MetadataClient(
        metadata_backend(kafka, "read_uncommitted", "auto"), RetryPolicy(3, 1.0)
    )
    return GroupStore(kafka, group, metadata)


def test_a_new_process_takes_over_the_group(cluster: KafkaAccess, topic: str) -> None:
    """
    A new process takes the group over from one that is still alive and so loses its claim; then the
    progress records of the group are deleted.
    """
    old, new = (group_store(cluster, f"{topic}-group") for _ in range(2))
    with closing(old), closing(new):
        first = old.claim(Owner("q", "a", 0), [topic]).owner
        old.write({Tp(topic, 0): ProgressRecord(3, first)})
        claim = new.claim(Owner("q", "b", 0), [topic])
        assert claim.records[Tp(topic, 0)].offset == 3
        new.write({Tp(topic, 0): ProgressRecord(4, claim.owner)})
        with pytest.raises(ClaimLostError):
            old.write({Tp(topic, 0): ProgressRecord(9, first)})
        assert new.read([topic])[Tp(topic, 0)].offset == 4
        new.delete_records()
        assert new.read([topic]) == {}


def assigned_topics(cluster: KafkaAccess, group: str) -> set[str]:
    """
    Return the topics of the partitions that the coordinator has assigned to the group's members.
    """
    admin = cluster.admin()
    description = admin.describe_consumer_groups([group])[group].result(SECONDS)
    return {
        position.topic
        for member in description.members
        for position in member.assignment.topic_partitions
    }


def test_the_progress_store_subscribes_to_added_topics(
    cluster: KafkaAccess, topic: str, request: pytest.FixtureRequest
) -> None:
    """
    When a topic is added to a query, the group's member subscribes to it before the topic's first
    offset is committed. Otherwise brokers would delete the topic's offsets after
    offsets.retention.minutes, even while the query runs.
    """
    added, group = cluster.create_topic(unique_name(request.node.name)), f"{topic}-group"
    with closing(group_store(cluster, group)) as store:
        owner = store.claim(Owner("q", "a", 0), [topic]).owner
        store.write({Tp(topic, 0): ProgressRecord(3, owner)})
        assert assigned_topics(cluster, group) == {topic}
        records = {Tp(topic, 0): ProgressRecord(4, owner), Tp(added, 0): ProgressRecord(1, owner)}
        with pytest.raises(ClaimLostError, match=f"not subscribed to '{added}'"):
            store.write(records)
        store.claim(owner, [topic, added])
        store.write(records)
        assert assigned_topics(cluster, group) == {topic, added}
        assert {tp: record.offset for tp, record in store.read().items()} == {
            Tp(topic, 0): 4,
            Tp(added, 0): 1,
        }


def test_the_progress_store_subscribes_after_a_restart(
    cluster: KafkaAccess, topic: str, request: pytest.FixtureRequest
) -> None:
    """
    A process subscribes to its own topics when it replaces another one whose session has not
    expired, although the coordinator replaces a static member without a rebalance.
    """
    other, group = cluster.create_topic(unique_name(request.node.name)), f"{topic}-group"
    with closing(group_store(cluster, group)) as old, closing(group_store(cluster, group)) as new:
        old.claim(Owner("q", "a", 0), [topic])
        for topics in ([topic, other], [other]):
            new.claim(Owner("q", "b", 0), topics)
            assert assigned_topics(cluster, group) == {*topics}
