"""
A consumer group of the classic protocol: members, rebalances and generations.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.kafka.codes import Code, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

EMPTY, PREPARING, COMPLETING, STABLE = (
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
)


class Joined(NamedTuple):
    """
    The response to JoinGroup; only the leader gets the members.
    """

    code: Code
    generation: int = -1
    protocol: str | None = None
    leader: str = ""
    member_id: str = ""
    members: tuple[Member, ...] = ()


@dataclass(frozen=True)
class Member:
    """
    The last JoinGroup of a member; ``protocols`` holds its metadata by the assignor's name.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    session_seconds: float
    rebalance_seconds: float
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""

    def metadata(self, protocol: str | None) -> bytes:
        return dict(self.protocols).get(protocol or "", b"")


class GroupSnapshot(NamedTuple):
    """
    The replicated state of a group whose members have their assignments.
    """

    generation: int
    protocol_type: str
    protocol: str | None
    leader: str
    members: tuple[Member, ...]


@dataclass
class ConsumerGroup:
    """
    A group's members and state. ``later`` runs an action after a delay; ``save`` replicates a
    snapshot, and then calls back.
    """

    later: Callable[[float, Callable[[], None]], None]
    now: Callable[[], float]
    save: Callable[[GroupSnapshot, Callable[[Code], None]], None]
    initial_rebalance_delay_seconds: float
    state: str = EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    #: Member ids that the group has assigned (MEMBER_ID_REQUIRED), whose members have not joined
    #: yet.
    expected: set[str] = field(default_factory=set)
    _joining: dict[str, Callable[[Joined], None]] = field(default_factory=dict)
    _syncing: dict[str, Callable[[Code, bytes], None]] = field(default_factory=dict)
    _seen: dict[str, float] = field(default_factory=dict)
    _rebalances: int = 0

    def restore(self, snapshot: GroupSnapshot) -> None:
        self.generation, self.protocol_type, self.protocol, self.leader = snapshot[:4]
        self.members = {member.member_id: member for member in snapshot.members}
        self.state = STABLE if self.members else EMPTY
        for member in snapshot.members:
            self._watch(member)

    def snapshot(self) -> GroupSnapshot:
        members = tuple(self.members.values())
        return GroupSnapshot(
            self.generation, self.protocol_type, self.protocol, self.leader, members
        )

    # --- Requests -------------------------------------------------------------------------------

    def join(self, member: Member, protocol_type: str, respond: Callable[[Joined], None]) -> None:
        """
        Handle JoinGroup of a member that has an id; the response follows the rebalance.
        """
        if self.members and protocol_type != self.protocol_type:
            raise RequestError(Code.INCONSISTENT_GROUP_PROTOCOL)
        self.protocol_type = protocol_type
        static = self.of_instance(member.instance_id)
        if static is not None and static.member_id != member.member_id:
            self._replace(static, member, respond)
            return
        earlier = self.members.get(member.member_id)
        self._update(member, earlier)
        unchanged = earlier is not None and earlier.protocols == member.protocols
        is_leader = member.member_id == self.leader
        if unchanged and (self.state == COMPLETING or (self.state == STABLE and not is_leader)):
            respond(self._answer(member.member_id))
            return
        self._joining[member.member_id] = respond
        self._rebalance()

    def _update(self, member: Member, earlier: Member | None) -> None:
        self.expected.discard(member.member_id)
        assignment = earlier.assignment if earlier else b""
        self.members[member.member_id] = replace(member, assignment=assignment)
        self._watch(member)

    def _replace(self, old: Member, new: Member, respond: Callable[[Joined], None]) -> None:
        """
        Replace a static member that has restarted. There is no rebalance if the group is stable and
        its protocol stays the same, even if the new member subscribes to other topics.
        """
        previous_leader = self.leader
        del self.members[old.member_id]
        self._seen.pop(old.member_id, None)
        self._fence(old.member_id)
        if self.leader == old.member_id:
            self.leader = new.member_id
        self._update(new, old)
        if self.state != STABLE or self._common_protocol() != self.protocol:
            self._joining[new.member_id] = respond
            self._rebalance()
            return
        # The response names the old leader's id, so that a leader that has restarted does not
        # assign partitions again.
        answer = self._answer(new.member_id)._replace(leader=previous_leader, members=())
        self.save(self.snapshot(), lambda code: respond(answer._replace(code=code)))

    def _fence(self, member_id: str) -> None:
        if joining := self._joining.pop(member_id, None):
            joining(Joined(Code.FENCED_INSTANCE_ID, member_id=member_id))
        if syncing := self._syncing.pop(member_id, None):
            syncing(Code.FENCED_INSTANCE_ID, b"")

    def sync(
        self,
        member_id: str,
        assignments: dict[str, bytes],
        respond: Callable[[Code, bytes], None],
    ) -> None:
        """
        Handle SyncGroup: the leader brings the assignments, all others wait for them.
        """
        if self.state == PREPARING:
            raise RequestError(Code.REBALANCE_IN_PROGRESS)
        if self.state == STABLE:
            respond(Code.NONE, self.members[member_id].assignment)
            return
        self._syncing[member_id] = respond
        if member_id != self.leader:
            return
        generation = self.generation
        for key, member in self.members.items():
            self.members[key] = replace(member, assignment=assignments.get(key, b""))

        def saved(code: Code) -> None:
            if self.state != COMPLETING or self.generation != generation:
                return
            self.state = STABLE if not code else COMPLETING
            syncing, self._syncing = self._syncing, {}
            for key, waiting in syncing.items():
                waiting(code, b"" if code else self.members[key].assignment)

        self.save(self.snapshot(), saved)

    def check(self, member_id: str, instance_id: str | None, generation: int) -> None:
        """
        Raise :class:`RequestError` unless this is a member of the current generation.
        """
        static = self.of_instance(instance_id)
        if static is not None and static.member_id != member_id:
            raise RequestError(Code.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise RequestError(Code.UNKNOWN_MEMBER_ID)
        if generation != self.generation:
            raise RequestError(Code.ILLEGAL_GENERATION)
        self._seen[member_id] = self.now()

    def of_instance(self, instance_id: str | None) -> Member | None:
        """
        Return the static member with this group.instance.id, or None if there is none.
        """
        if instance_id is None:
            return None
        members = (m for m in self.members.values() if m.instance_id == instance_id)
        return next(members, None)

    def remove(self, member_id: str) -> None:
        """
        Remove a member that has left or whose session has expired.
        """
        del self.members[member_id]
        self._seen.pop(member_id, None)
        if joining := self._joining.pop(member_id, None):
            joining(Joined(Code.UNKNOWN_MEMBER_ID))
        if syncing := self._syncing.pop(member_id, None):
            syncing(Code.UNKNOWN_MEMBER_ID, b"")
        self._rebalance()

    def resign(self) -> None:
        """
        Respond to all pending requests that this is no longer the coordinator.
        """
        joining, self._joining = self._joining, {}
        syncing, self._syncing = self._syncing, {}
        for member_id, join in joining.items():
            join(Joined(Code.NOT_COORDINATOR, member_id=member_id))
        for sync in syncing.values():
            sync(Code.NOT_COORDINATOR, b"")

    # --- Rebalances -----------------------------------------------------------------------------

    def _rebalance(self) -> None:
        if self.state == PREPARING:
            self._complete_if_all()
            return
        syncing, self._syncing = self._syncing, {}
        for waiting in syncing.values():
            waiting(Code.REBALANCE_IN_PROGRESS, b"")
        initial = self.state == EMPTY and self.initial_rebalance_delay_seconds > 0
        self.state = PREPARING
        self._rebalances += 1
        rebalance = self._rebalances
        limit = max((m.rebalance_seconds for m in self.members.values()), default=0.0)

        def expire() -> None:
            if self.state == PREPARING and self._rebalances == rebalance:
                self._complete()

        if initial:
            self.later(min(self.initial_rebalance_delay_seconds, limit), expire)
        else:
            self.later(limit, expire)
            self._complete_if_all()

    def _complete_if_all(self) -> None:
        if self.members.keys() <= self._joining.keys():
            self._complete()

    def _complete(self) -> None:
        """
        Begin a generation with the members that have joined again, and with static ones.
        """
        self.members = {
            key: member
            for key, member in self.members.items()
            if key in self._joining or member.instance_id is not None
        }
        self.generation += 1
        joining, self._joining = self._joining, {}
        if not self.members:
            self.state, self.protocol, self.leader = EMPTY, None, ""
            self.save(self.snapshot(), lambda _: None)
            return
        self.state = COMPLETING
        if self.leader not in joining:
            self.leader = next(iter(joining), next(iter(self.members)))
        self.protocol = self._common_protocol()
        for member_id, respond in joining.items():
            self._seen[member_id] = self.now()
            respond(self._answer(member_id))

    def _common_protocol(self) -> str:
        offered = [[name for name, _ in member.protocols] for member in self.members.values()]
        return next(n for n in offered[0] if all(n in names for names in offered))

    def _answer(self, member_id: str) -> Joined:
        members = tuple(self.members.values()) if member_id == self.leader else ()
        return Joined(Code.NONE, self.generation, self.protocol, self.leader, member_id, members)

    def _watch(self, member: Member) -> None:
        """
        Remove a member that sends no heartbeat for its session timeout.
        """
        is_new = member.member_id not in self._seen
        self._seen[member.member_id] = self.now()

        def check() -> None:
            current = self.members.get(member.member_id)
            if current is None:
                return
            if member.member_id in self._joining:
                # A response to this member is pending.
                self._seen[member.member_id] = self.now()
            remaining = self._seen[member.member_id] + current.session_seconds - self.now()
            if remaining <= 0:
                self.remove(member.member_id)
            else:
                self.later(remaining, check)

        if is_new:
            self.later(member.session_seconds, check)
