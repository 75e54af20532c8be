"""
Consumer groups of the simulated cluster: offsets, generations and static members.
"""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from tests.simulation.kafka.codes import Code
from tests.simulation.kafka.image import GROUPS
from tests.support.simulated_kafka import Pending, SimulatedKafka

GROUP = "g"
_JOIN, _SYNC, _HEARTBEAT, _COMMIT, _FETCH = 5, 3, 3, 7, 5


class Groups(SimulatedKafka):
    """
    Requests of members of one group, to the coordinator that the controller knows.
    """

    @property
    def node(self) -> int:
        return self.cluster.coordinator(GROUP, GROUPS)

    def join(self, member_id: str = "", instance_id: str | None = None) -> Pending:  # type: ignore[override] # another API
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        return self.send(self.node, request, _JOIN)

    def static(self, instance_id: str = "only") -> Any:
        """
        Join as a static member, the only one of the group, and take the assignment.
        """
        joined = self.response(self.join(instance_id=instance_id))
        self.sync(joined, {joined.member_id: b"all"})
        return joined

    def sync(self, joined: Any, assignments: dict[str, bytes]) -> Any:
        kind = SyncGroupRequest.SyncGroupRequestAssignment
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=None,
            assignments=[kind(member_id=m, assignment=a) for m, a in assignments.items()],
        )
        return self.request(self.node, request, _SYNC)

    def heartbeat(self, joined: Any, instance_id: str | None = None) -> int:
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=instance_id,
        )
        return int(self.request(self.node, request, _HEARTBEAT).error_code)

    def commit(
        self, offset: int, generation: int = -1, member_id: str = "", metadata: str = ""
    ) -> int:
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        part = topic.OffsetCommitRequestPartition(
            partition_index=0,
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata=metadata,
        )
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=None,
            topics=[topic(name="t", partitions=[part])],
        )
        response = self.request(self.node, request, _COMMIT)
        return int(response.topics[0].partitions[0].error_code)

    def committed(self) -> int:
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
        request = OffsetFetchRequest(group_id=GROUP, topics=[topic])
        response = self.request(self.node, request, _FETCH)
        assert response.error_code == Code.NONE
        return int(response.topics[0].partitions[0].committed_offset)


@pytest.fixture
def groups() -> Groups:
    """
    Three brokers with a topic ``t``, whose coordinators have loaded their groups.
    """
    groups = Groups(initial_rebalance_seconds=0)
    groups.cluster.create_topic("t", 1)
    groups.time.run(1)
    return groups


def test_offsets_survive_a_new_coordinator(groups: Groups) -> None:
    """
    Another coordinator has the offsets that were committed, even after a crash.
    """
    assert groups.committed() == -1
    assert groups.commit(7) == Code.NONE
    groups.cluster.move_coordinator(GROUP, kind=GROUPS)
    groups.time.run(1)
    assert groups.committed() == 7
    groups.cluster.crash(groups.node)
    groups.time.run(11)
    assert groups.committed() == 7


def test_an_isolated_coordinator_accepts_no_offsets(groups: Groups) -> None:
    """
    A coordinator that is cut off rejects an offset, which it cannot replicate.
    """
    groups.cluster.isolate(groups.node)
    assert groups.commit(7) == Code.COORDINATOR_NOT_AVAILABLE


def test_long_metadata_is_refused(groups: Groups) -> None:
    """
    Metadata of more than 4096 bytes is rejected, together with its offset.
    """
    assert groups.commit(7, metadata="x" * 4096) == Code.NONE
    assert groups.commit(8, metadata="x" * 4097) == Code.OFFSET_METADATA_TOO_LARGE
    assert groups.committed() == 7


def test_only_members_commit(groups: Groups) -> None:
    """
    A group with members accepts offsets of its current generation only.
    """
    joined = groups.static()
    assert groups.commit(1) == Code.UNKNOWN_MEMBER_ID
    member = joined.member_id
    assert groups.commit(1, joined.generation_id + 1, member) == Code.ILLEGAL_GENERATION
    assert groups.commit(1, joined.generation_id, member) == Code.NONE


def test_a_new_member_needs_an_assigned_id(groups: Groups) -> None:
    """
    A dynamic member joins only with the id that the coordinator assigned to it.
    """
    rejected = groups.response(groups.join())
    assert rejected.error_code == Code.MEMBER_ID_REQUIRED
    assert groups.response(groups.join("invented")).error_code == Code.UNKNOWN_MEMBER_ID
    assert groups.response(groups.join(rejected.member_id)).error_code == Code.NONE


def test_a_second_member_waits_for_the_first(groups: Groups) -> None:
    """
    A rebalance ends when all members have joined again, in a new generation.
    """
    first = groups.static("a")
    waiting = groups.join(instance_id="b")
    groups.time.run(1)
    assert not waiting.done
    assert groups.heartbeat(first) == Code.REBALANCE_IN_PROGRESS
    third = groups.response(groups.join(first.member_id, "a"))
    second = groups.response(waiting)
    assert third.generation_id == second.generation_id == first.generation_id + 1
    assert third.leader == second.leader == first.member_id
    assert len(third.members) == 2
    assert not second.members


def test_a_restarted_static_member_fences_its_predecessor(groups: Groups) -> None:
    """
    A restarted static member takes the place and the assignment of its predecessor, without a
    rebalance.
    """
    old = groups.static()
    new = groups.response(groups.join(instance_id="only"))
    assert new.generation_id == old.generation_id
    assert new.member_id != old.member_id
    assert groups.heartbeat(old, "only") == Code.FENCED_INSTANCE_ID
    assert groups.sync(new, {}).assignment == b"all"
    assert groups.heartbeat(new, "only") == Code.NONE


def test_a_silent_member_is_removed(groups: Groups) -> None:
    """
    A member that sends no heartbeat for its session timeout is removed; a member that sends
    heartbeats stays.
    """
    joined = groups.static()
    groups.time.run(8)
    assert groups.heartbeat(joined) == Code.NONE
    groups.time.run(8)
    assert groups.heartbeat(joined) == Code.NONE
    groups.time.run(11)
    assert groups.heartbeat(joined) == Code.UNKNOWN_MEMBER_ID
    assert groups.commit(1) == Code.NONE


def test_members_survive_a_new_coordinator(groups: Groups) -> None:
    """
    A stable group is replicated, so its members continue with another coordinator.
    """
    joined = groups.static()
    old = groups.node
    groups.cluster.move_coordinator(GROUP, kind=GROUPS)
    groups.time.run(1)
    assert groups.node != old
    assert groups.heartbeat(joined) == Code.NONE


def test_a_waiting_member_learns_of_a_new_coordinator(groups: Groups) -> None:
    """
    A coordinator that is replaced answers the members that wait for a rebalance.
    """
    groups.static("a")
    waiting = groups.join(instance_id="b")
    groups.cluster.move_coordinator(GROUP, kind=GROUPS)
    assert groups.response(waiting).error_code == Code.NOT_COORDINATOR
