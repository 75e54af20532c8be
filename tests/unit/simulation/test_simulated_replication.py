"""
Leaders, followers and faults of the simulated cluster.
"""

from __future__ import annotations

import pytest
from tests.simulation.kafka.codes import Code
from tests.support.kafka_requests import EARLIEST, produced
from tests.support.simulated_kafka import SimulatedKafka

SESSION = 9.0


@pytest.fixture
def kafka() -> SimulatedKafka:
    """
    Three brokers with a topic ``t`` of one partition and three replicas, two of them required.
    """
    kafka = SimulatedKafka()
    kafka.cluster.create_topic("t", 1)
    return kafka


def followers(kafka: SimulatedKafka) -> list[int]:
    return [n for n in kafka.cluster.replicas("t", 0) if n != kafka.leader]


def values(kafka: SimulatedKafka) -> list[bytes | None]:
    return [r.value for r in kafka.cluster.records("t", 0)]


def test_all_in_sync_replicas_confirm(kafka: SimulatedKafka) -> None:
    """
    With acks=all a leader answers when all in-sync replicas have the batch, with acks=1
    immediately.
    """
    kafka.cluster.lag_replica("t", 0, followers(kafka)[0], 5)
    assert kafka.send_produce(b"a", acks=1).done
    waiting = kafka.send_produce(b"b")
    kafka.time.run(4)
    assert not waiting.done
    assert kafka.fetch(0).high_watermark == 0
    kafka.time.run(2)
    assert produced(waiting.response).error_code == Code.NONE
    assert kafka.fetch(0).high_watermark == 2


def test_a_confirmation_may_time_out(kafka: SimulatedKafka) -> None:
    """
    A leader that waits too long answers REQUEST_TIMED_OUT, and the records stay in its log.
    """
    kafka.cluster.lag_replica("t", 0, followers(kafka)[0], 5)
    assert kafka.produce(b"a", timeout_ms=1000).error_code == Code.REQUEST_TIMED_OUT
    kafka.time.run(5)
    assert kafka.cluster.high_watermark("t", 0) == 1


def test_a_lagging_replica_leaves_and_rejoins(kafka: SimulatedKafka) -> None:
    """
    A follower that does not fetch for the lag time is not in sync, until it has caught up.
    """
    slow = followers(kafka)[0]
    kafka.cluster.lag_replica("t", 0, slow, 70)
    waiting = kafka.send_produce(b"a", timeout_ms=100_000)
    kafka.time.run(65)
    assert slow not in kafka.cluster.in_sync("t", 0)
    assert produced(waiting.response).error_code == Code.NONE
    kafka.time.run(10)
    assert slow in kafka.cluster.in_sync("t", 0)


def test_too_few_replicas_refuse(kafka: SimulatedKafka) -> None:
    """
    With fewer in-sync replicas than required, acks=all is refused and acks=1 is not.
    """
    for node in followers(kafka):
        kafka.cluster.crash(node)
    kafka.time.run(SESSION + 1)
    assert kafka.produce(b"a").error_code == Code.NOT_ENOUGH_REPLICAS
    assert kafka.produce(b"a", acks=1).error_code == Code.NONE
    assert kafka.cluster.high_watermark("t", 0) == 0


def test_acks_0_has_no_response(kafka: SimulatedKafka) -> None:
    """
    A Produce request with acks=0 is not answered.
    """
    pending = kafka.send_produce(b"a", acks=0)
    kafka.time.run(1)
    assert pending.replies == 0
    assert values(kafka) == [b"a"]


def test_a_crash_closes_connections_and_elects(kafka: SimulatedKafka) -> None:
    """
    A broker that dies answers its open requests with a disconnect, and another one leads.
    """
    kafka.produce(b"a")
    first, epoch = kafka.leader, kafka.cluster.leader_epoch("t", 0)
    waiting = kafka.send_fetch(1, max_wait_ms=10_000)
    kafka.cluster.crash(first)
    assert waiting.closed
    assert kafka.send_fetch(0, node=first).closed
    kafka.time.run(SESSION + 1)
    assert kafka.leader != first
    assert kafka.cluster.leader_epoch("t", 0) == epoch + 1
    kafka.produce(b"b")
    kafka.cluster.start(first)
    kafka.time.run(1)
    assert first in kafka.cluster.in_sync("t", 0)
    assert values(kafka) == [b"a", b"b"]
    assert waiting.replies == 1


def test_a_follower_is_not_the_leader(kafka: SimulatedKafka) -> None:
    """
    A follower refuses Produce and ListOffsets, and Fetch of clients that cannot read from it.
    """
    kafka.produce(b"a")
    kafka.time.run(1)
    node = followers(kafka)[0]
    not_leader = Code.NOT_LEADER_OR_FOLLOWER
    assert kafka.produce(b"b", node=node).error_code == not_leader
    assert kafka.list_offset(node=node).error_code == not_leader
    assert kafka.fetch(0, node=node, version=10).error_code == not_leader
    assert kafka.fetch(0, node=node).records


def test_leader_epochs_are_checked(kafka: SimulatedKafka) -> None:
    """
    Requests with an older or a newer leader epoch than the broker's are refused.
    """
    kafka.cluster.move_leader("t", 0)
    kafka.time.run(1)
    fenced, unknown = Code.FENCED_LEADER_EPOCH, Code.UNKNOWN_LEADER_EPOCH
    assert kafka.fetch(0, epoch=0).error_code == fenced
    assert kafka.fetch(0, epoch=2).error_code == unknown
    assert kafka.fetch(0, epoch=1).error_code == Code.NONE
    assert kafka.list_offset(epoch=0).error_code == fenced
    assert kafka.list_offset(epoch=2).error_code == unknown
    assert kafka.epoch_end(0, current=0).error_code == fenced


def test_epochs_have_ends(kafka: SimulatedKafka) -> None:
    """
    OffsetForLeaderEpoch returns where the next epoch starts, or the end of the log.
    """
    kafka.produce(b"a", b"b")
    kafka.cluster.move_leader("t", 0)
    kafka.time.run(1)
    kafka.produce(b"c")
    ends = [kafka.epoch_end(epoch) for epoch in range(3)]
    assert [(end.leader_epoch, end.end_offset) for end in ends] == [(0, 2), (1, 3), (-1, -1)]
    assert kafka.list_offset().leader_epoch == 1
    assert kafka.list_offset(EARLIEST).leader_epoch == 0


def test_a_new_leader_does_not_name_an_old_end(kafka: SimulatedKafka) -> None:
    """
    Until a new leader knows that its log is replicated, its high watermark may be too low: Fetch
    returns it, and ListOffsets returns OFFSET_NOT_AVAILABLE (KIP-207).
    """
    kafka.produce(b"a")
    kafka.time.run(1)
    kafka.produce(b"b")
    kafka.cluster.move_leader("t", 0, held_seconds=20)
    kafka.time.run(1)
    answer = kafka.fetch(0)
    assert (answer.error_code, answer.high_watermark) == (Code.NONE, 1)
    assert kafka.list_offset().error_code == Code.OFFSET_NOT_AVAILABLE
    assert kafka.list_offset(version=4).error_code == Code.LEADER_NOT_AVAILABLE
    assert kafka.list_offset(EARLIEST).error_code == Code.NONE
    kafka.time.run(20)
    assert kafka.list_offset().offset == 2


def test_an_isolated_leader_serves_old_data(kafka: SimulatedKafka) -> None:
    """
    A leader that is cut off keeps its role for its clients: its appends are not confirmed by
    others, stay invisible, and are lost once it follows the new leader.
    """
    kafka.produce(b"a")
    stale = kafka.leader
    kafka.cluster.isolate(stale)
    kafka.time.run(SESSION + 1)
    assert kafka.leader != stale
    kafka.produce(b"b")
    assert kafka.produce(b"lost", node=stale, acks=1).error_code == Code.NONE
    timed_out = kafka.produce(b"lost", node=stale, timeout_ms=500)
    assert timed_out.error_code == Code.REQUEST_TIMED_OUT
    assert kafka.list_offset(node=stale).offset == 1
    assert kafka.fetch(1, node=stale).high_watermark == 1
    kafka.cluster.heal()
    kafka.time.run(1)
    assert kafka.list_offset(node=stale).error_code == Code.NOT_LEADER_OR_FOLLOWER
    assert values(kafka) == [b"a", b"b"]
    assert kafka.fetch(0, node=stale).high_watermark == 2


def test_a_paused_broker_answers_later(kafka: SimulatedKafka) -> None:
    """
    A paused broker's connections stay open; requests wait, and a long pause costs the leadership.
    """
    first = kafka.leader
    kafka.cluster.pause(first, 20)
    waiting = kafka.send_fetch(0, node=first)
    kafka.time.run(19)
    done, leader = waiting.done, kafka.leader
    kafka.time.run(2)
    assert (done, waiting.done) == (False, True)
    assert leader != first
    assert waiting.replies == 1


def test_a_long_poll_ends_after_the_pause(kafka: SimulatedKafka) -> None:
    """
    A request whose waiting time ends during a pause is answered after it.
    """
    waiting = kafka.send_fetch(0, max_wait_ms=500)
    kafka.cluster.pause(kafka.leader, 3)
    kafka.time.run(2)
    assert not waiting.done
    kafka.time.run(2)
    assert waiting.done


def test_a_short_crash_costs_the_leadership(kafka: SimulatedKafka) -> None:
    """
    A broker that is started again before its session has expired is fenced as it registers.
    """
    kafka.produce(b"a")
    first = kafka.leader
    kafka.cluster.crash(first)
    kafka.cluster.start(first)
    kafka.time.run(1)
    assert kafka.leader != first
    assert first in kafka.cluster.in_sync("t", 0)
    assert values(kafka) == [b"a"]


def test_an_unclean_election_loses_records(kafka: SimulatedKafka) -> None:
    """
    A leader that was not in sync truncates the logs of the others, and offsets are reused.
    """
    behind = followers(kafka)[0]
    kafka.produce(b"a")
    kafka.cluster.crash(behind)
    kafka.time.run(SESSION + 1)
    kafka.produce(b"b")
    kafka.cluster.start(behind)
    kafka.cluster.lag_replica("t", 0, behind, 60)
    kafka.time.run(1)
    kafka.cluster.elect_unclean("t", 0, behind)
    kafka.time.run(1)
    assert kafka.produce(b"c").base_offset == 1
    assert values(kafka) == [b"a", b"c"]
    assert len(kafka.cluster.in_sync("t", 0)) == 3
    assert kafka.epoch_end(0).end_offset == 1


def test_no_replica_is_left(kafka: SimulatedKafka) -> None:
    """
    A partition has no leader while none of its in-sync replicas is alive.
    """
    kafka.produce(b"a")
    last, others = kafka.leader, followers(kafka)
    for node in [*others, last]:
        kafka.cluster.crash(node)
        kafka.time.run(SESSION + 1)
    assert kafka.leader == -1
    kafka.cluster.start(others[0])
    kafka.time.run(1)
    assert kafka.leader == -1
    kafka.cluster.start(last)
    kafka.time.run(1)
    assert kafka.leader == last
    assert values(kafka) == [b"a"]


def test_a_duplicate_survives_a_new_leader(kafka: SimulatedKafka) -> None:
    """
    Replicas know the producers' sequences, so a new leader recognises a duplicate.
    """
    kafka.produce(b"a", producer_id=5)
    kafka.cluster.move_leader("t", 0)
    kafka.time.run(1)
    assert kafka.produce(b"a", producer_id=5).base_offset == 0
    assert kafka.produce(b"b", producer_id=5, sequence=1).base_offset == 1
    assert values(kafka) == [b"a", b"b"]


def test_the_same_seed_gives_the_same_run() -> None:
    """
    A run depends on its seed only.
    """

    def run(seed: int) -> tuple[float, list[int]]:
        kafka = SimulatedKafka(seed=seed)
        kafka.cluster.create_topic("t", 1)
        for _ in range(3):
            kafka.produce(b"a")
            kafka.cluster.move_leader("t", 0)
            kafka.time.run(1)
        return kafka.time.now(), [kafka.leader]

    def confirmed_at(seed: int) -> float:
        kafka = SimulatedKafka(seed=seed)
        kafka.cluster.create_topic("t", 1)
        kafka.produce(b"a")
        return kafka.time.now()

    assert run(1) == run(1)
    assert confirmed_at(1) == confirmed_at(1)
    assert confirmed_at(1) != confirmed_at(2)
