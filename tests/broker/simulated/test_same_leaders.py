"""
Three brokers, one of which dies: the simulated cluster and real brokers respond in the same way.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.simulation.kafka.codes import Code
from tests.support.kafka_requests import EARLIEST
from tests.support.served_kafka import RawKafka, SimulatedAccess, values, wire_values

from pyspark_pykafka.testing import KafkaCluster
from pyspark_pykafka.testing.plugin import unique_name
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 60.0
NODES = {1, 2, 3}


@pytest.fixture(scope="module", params=["simulated", "real"])
def three(request: pytest.FixtureRequest) -> Iterator[SimulatedAccess | KafkaCluster]:
    """
    Three brokers, simulated or real.
    """
    if request.param == "real":
        # This fixture skips or fails the test if servers cannot be started here.
        request.getfixturevalue("kafka_cluster")
    with SimulatedAccess(3) if request.param == "simulated" else KafkaCluster(3) as cluster:
        yield cluster


@pytest.fixture
def replicated(
    three: SimulatedAccess | KafkaCluster, request: pytest.FixtureRequest
) -> Iterator[RawKafka]:
    """
    Connections to all brokers, for a topic with a replica on each.
    """
    topic = three.create_topic(unique_name(request.node.name))
    with closing(RawKafka(three.bootstrap, topic)) as requests:
        yield requests


def test_followers_answer_alike(replicated: RawKafka) -> None:
    """
    A follower rejects requests that only leaders handle, and serves Fetch requests of version 11+.
    """
    kafka = replicated
    assert kafka.produce(b"a").error_code == Code.NONE
    node = min(NODES - {kafka.leader})
    not_leader = Code.NOT_LEADER_OR_FOLLOWER
    assert kafka.produce(b"b", node=node).error_code == not_leader
    assert kafka.list_offset(node=node).error_code == not_leader
    assert kafka.epoch_end(0, node=node).error_code == not_leader
    assert kafka.fetch(0, node=node, version=10).error_code == not_leader

    def blocker() -> str | None:
        answer = kafka.fetch(0, node=node)
        assert answer.error_code == Code.NONE
        return None if answer.records else "the follower does not know the high watermark"

    wait_until(blocker, SECONDS)


def test_epochs_change_alike(three: SimulatedAccess | KafkaCluster, replicated: RawKafka) -> None:
    """
    After the leader's death another one leads in the next epoch, and requests in the old epoch are
    refused; the old leader follows once it is back.
    """
    kafka = replicated
    producer_id = kafka.init(None).producer_id
    kafka.produce(b"a", b"b", producer_id=producer_id)
    dead = kafka.leader
    seen_by = min(NODES - {dead})
    before = kafka.partition(seen_by)
    three.kill(dead)

    def elected() -> str | None:
        return None if kafka.partition(seen_by).leader_id not in {dead, -1} else "no new leader"

    wait_until(elected, SECONDS)
    after = kafka.partition(seen_by)
    assert after.leader_epoch == before.leader_epoch + 1
    leader = after.leader_id

    def ready() -> str | None:
        return "not yet" if kafka.list_offset(node=leader).error_code else None

    wait_until(ready, SECONDS)
    duplicate = kafka.produce(b"a", b"b", node=leader, producer_id=producer_id)
    assert (duplicate.error_code, duplicate.base_offset) == (Code.NONE, 0)
    third = kafka.produce(b"c", node=leader, producer_id=producer_id, sequence=2)
    assert (third.error_code, third.base_offset) == (Code.NONE, 2)
    old, new = before.leader_epoch, after.leader_epoch
    assert kafka.fetch(0, node=leader, epoch=old).error_code == Code.FENCED_LEADER_EPOCH
    assert kafka.fetch(0, node=leader, epoch=new + 1).error_code == Code.UNKNOWN_LEADER_EPOCH
    assert kafka.list_offset(node=leader, epoch=old).error_code == Code.FENCED_LEADER_EPOCH
    ends = [kafka.epoch_end(epoch, node=leader) for epoch in (old, new, new + 1)]
    assert [(end.leader_epoch, end.end_offset) for end in ends] == [(old, 2), (new, 3), (-1, -1)]
    listed = [kafka.list_offset(node=leader), kafka.list_offset(EARLIEST, node=leader)]
    assert [(response.offset, response.leader_epoch) for response in listed] == [(3, new), (0, old)]
    three.restart(dead)

    def rejoined() -> str | None:
        in_sync = set(kafka.partition(seen_by).isr_nodes)
        return None if in_sync == NODES else f"in sync are {in_sync}"

    wait_until(rejoined, SECONDS)
    assert wire_values(three, kafka.topic) == values(three, kafka.topic) == [b"a", b"b", b"c"]


def test_too_few_replicas_are_alike(
    three: SimulatedAccess | KafkaCluster, request: pytest.FixtureRequest
) -> None:
    """
    With a dead broker, a topic that requires three in-sync replicas rejects only acks=all.
    """
    name = unique_name(request.node.name)
    topic = three.create_topic(name, config={"min.insync.replicas": 3})
    with closing(RawKafka(three.bootstrap, topic)) as kafka:
        kafka.produce(b"a")
        seen_by = kafka.leader
        dead = min(NODES - {seen_by})
        three.kill(dead)

        def removed() -> str | None:
            return "in sync" if dead in kafka.partition(seen_by).isr_nodes else None

        def refused() -> str | None:
            # A broker publishes new metadata a moment before its partitions follow them. Until the
            # partitions follow, a broker appends the record, and waits for the dead replica.
            code = kafka.produce(b"b", node=seen_by, timeout_ms=500).error_code
            assert code in {Code.NOT_ENOUGH_REPLICAS, Code.REQUEST_TIMED_OUT}
            return None if code == Code.NOT_ENOUGH_REPLICAS else "appended"

        wait_until(removed, SECONDS)
        wait_until(refused, SECONDS)
        single = kafka.produce(b"c", node=seen_by, acks=1)
        assert single.error_code == Code.NONE
        # With too few replicas the high watermark does not advance, either (KIP-966).
        assert kafka.fetch(1, node=seen_by).high_watermark == 1
        three.restart(dead)

        def replicated() -> str | None:
            end = kafka.list_offset(node=seen_by).offset
            return None if end == single.base_offset + 1 else f"the high watermark is {end}"

        wait_until(replicated, SECONDS)
