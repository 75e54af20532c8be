"""
A replica of a partition: a leader appends and counts acknowledgements, a follower fetches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.kafka.image import NO_LEADER
from tests.simulation.kafka.replica_log import ReplicaLog

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from tests.simulation.kafka.batches import StoredBatch
    from tests.simulation.kafka.image import Partition, PartitionState
    from tests.simulation.kafka.node import Node

_MANY_WAITING = 64


@dataclass
class Follower:
    """
    A leader's view of a follower: its log end, and when it last equalled the leader's.
    """

    end: int
    caught_up: float


class Replica:
    """
    ``epoch`` is the leader epoch that this broker knows; ``leads`` is whether the broker is the
    leader in that epoch.
    """

    def __init__(self, node: Node, partition: Partition, topic_id: UUID | None = None) -> None:
        self.node = node
        self.partition = partition
        self.topic_id = topic_id
        self.log = ReplicaLog()
        self.high_watermark = 0
        self.leads = False
        self.leader = NO_LEADER
        self.epoch = -1
        self.epoch_start = 0
        self.isr: tuple[int, ...] = ()
        self.min_isr = 1
        #: The times until which a follower does not fetch, and a leader does not raise its high
        #: watermark.
        self.lags_until = 0.0
        self.holds_until = 0.0
        self._followers: dict[int, Follower] = {}
        self._waiting: list[Callable[[], bool]] = []
        self._pulling = False
        self._checking = False

    # --- Waiting requests -----------------------------------------------------------------------

    def wait(self, done: Callable[[], bool]) -> None:
        """
        Call ``done`` now and after each change, until it returns True.
        """
        if not done():
            self._waiting.append(done)
        if len(self._waiting) > _MANY_WAITING:
            # Drops requests that have timed out.
            self.notify()

    def notify(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._waiting += [done for done in waiting if not done()]

    def stop(self) -> None:
        """
        End the replica's role, because its broker dies or no longer hosts the replica.
        """
        self.leads, self.leader, self.epoch = False, NO_LEADER, -1
        self.notify()
        self._waiting.clear()

    def restart(self) -> None:
        """
        Restore the high watermark from its checkpoint, which may be older.
        """
        ends = [b.next_offset for b in self.log.appended if b.next_offset <= self.high_watermark]
        checkpoint = self.node.world.random.choice([*ends[-5:], self.high_watermark])
        self.high_watermark = max(checkpoint, self.log.start)

    # --- Roles ----------------------------------------------------------------------------------

    def apply(self, state: PartitionState, min_isr: int) -> None:
        self.min_isr = min_isr
        if state.epoch > self.epoch:
            self.epoch, self.leader = state.epoch, state.leader
            self.leads = state.leader == self.node.id
            if self.leads:
                self._lead()
        if state.epoch == self.epoch:
            self.isr = state.isr
        if self.leads:
            self.advance()
            self._check_later()
            self._followers_pull()
        self.notify()
        self.pull_soon()

    def _lead(self) -> None:
        self.epoch_start = self.log.end
        self.log.assign_epoch(self.epoch, self.log.end)
        self._followers = {}

    # --- Leading --------------------------------------------------------------------------------

    @property
    def watermark_is_current(self) -> bool:
        """
        Whether the high watermark has reached the end of earlier leaders' batches (KIP-207).
        """
        return self.high_watermark >= self.epoch_start

    @property
    def last_stable(self) -> int:
        first = self.log.producers.first_unstable(self.high_watermark)
        return self.high_watermark if first is None else min(first, self.high_watermark)

    def append(self, batch: StoredBatch) -> StoredBatch:
        """
        Append a batch at the end of the leader's log.
        """
        assert self.leads
        placed = batch.placed(self.log.end, self.epoch)
        self.log.append(placed)
        self.advance()
        self._check_later()
        self._followers_pull()
        return placed

    def advance(self) -> None:
        """
        Raise the high watermark to the lowest log end of the in-sync replicas.
        """
        if self.log.end <= self.high_watermark or not self.leads or len(self.isr) < self.min_isr:
            return
        if self.node.world.now() < self.holds_until:
            return
        ends = [self._followers[n].end if n in self._followers else 0 for n in self._others()]
        reached = min([*ends, self.log.end])
        if reached > self.high_watermark:
            self.high_watermark = reached
            self.notify()
            self._followers_pull()

    def delete_before(self, offset: int) -> None:
        """
        Remove old records; followers remove them at their next fetch.
        """
        self.log.delete_before(offset)
        self.notify()
        self._followers_pull()

    def hold(self, seconds: float) -> None:
        """
        Keep the high watermark where it is, as a new leader does until its followers have fetched.
        """
        self.holds_until = self.lags_until = self.node.world.now() + seconds
        # Slightly later: ``holds_until`` may exceed the clock's time by a rounding error.
        self.node.world.schedule.call_later(seconds + 1e-3, self.advance)

    def _others(self) -> list[int]:
        return [node for node in self.isr if node != self.node.id]

    def fetched_by(self, follower: int, end: int) -> None:
        """
        Record a follower's log end, and add it to the in-sync replicas once it has caught up.
        """
        now = self.node.world.now()
        state = self._followers.get(follower)
        if state is None:
            state = self._followers[follower] = Follower(end, now)
        state.end = end
        if end >= self.log.end:
            state.caught_up = now
        if follower not in self.isr and end >= max(self.high_watermark, self.epoch_start):
            self._alter_isr((*self.isr, follower))
        self.advance()

    def _alter_isr(self, isr: tuple[int, ...]) -> None:
        if self.node.world.controller.alter_isr(self.node, self.partition, isr):
            self.isr = isr
            self.advance()
            self.notify()

    def _check_later(self) -> None:
        """
        Once the lag time has passed, look for followers that do not fetch.
        """
        if not self._checking and self._behind():
            self._checking = True
            world = self.node.world
            world.schedule.call_later(world.settings.replica_lag_seconds, self._check_lag)

    def _behind(self) -> list[int]:
        return [
            node
            for node in self._others()
            if node not in self._followers or self._followers[node].end < self.log.end
        ]

    def _check_lag(self) -> None:
        self._checking = False
        if not self.leads or not self.node.alive:
            return
        limit = self.node.world.now() - self.node.world.settings.replica_lag_seconds
        out_of_sync = {
            node
            for node in self._behind()
            if node not in self._followers or self._followers[node].caught_up <= limit
        }
        if out_of_sync:
            self._alter_isr(tuple(node for node in self.isr if node not in out_of_sync))
        self._check_later()

    def _followers_pull(self) -> None:
        for node in self.node.world.nodes.values():
            replica = node.replicas.get(self.partition)
            if replica is not None and replica is not self:
                replica.pull_soon()

    # --- Following ------------------------------------------------------------------------------

    def pull_soon(self) -> None:
        """
        Fetch from the leader after a delay, unless a fetch is on its way.
        """
        if self._pulling or self.leads or self._source() is None:
            return
        self._pulling = True
        world = self.node.world
        lag = max(self.lags_until - world.now(), 0.0)
        world.schedule.call_later(lag + world.settings.replication.draw(world.random), self._pull)

    def _source(self) -> Replica | None:
        """
        Return the leader if it can be reached and also considers itself the leader in this epoch;
        otherwise None.
        """
        world = self.node.world
        if self.leader not in world.nodes or not world.connected(self.node.id, self.leader):
            return None
        leader = world.nodes[self.leader].replicas.get(self.partition)
        if leader is None or not leader.leads or leader.epoch != self.epoch:
            return None
        if leader.topic_id != self.topic_id:
            # One of the brokers does not know yet that the topic was recreated.
            return None
        return leader

    def _pull(self) -> None:
        self._pulling = False
        leader = self._source()
        if leader is None or self.leads:
            return
        if self.lags_until > self.node.world.now():
            self.pull_soon()
            return
        self._truncate_to(leader.log)
        # A leader reads before it counts the follower, so that the response has the old watermark.
        watermark = leader.high_watermark
        leader.fetched_by(self.node.id, self.log.end)
        for batch in leader.log.appended_from(self.log.end):
            self.log.append(batch)
        self.log.delete_before(min(leader.log.start, self.log.end))
        self.high_watermark = min(watermark, self.log.end)
        self.notify()
        if leader.awaits(self):
            self.pull_soon()

    def awaits(self, replica: Replica) -> bool:
        """
        Return whether a follower has to fetch again: to get records or the high watermark, or to
        confirm its log end.
        """
        follower = self._followers.get(replica.node.id)
        return (
            follower is None
            or follower.end < self.log.end
            or replica.high_watermark < min(self.high_watermark, self.log.end)
            or (
                replica.node.id not in self.isr
                and self.node.reachable
                and follower.end < self.log.end
            )
        )

    def _truncate_to(self, log: ReplicaLog) -> None:
        """
        Remove the batches that the leader lacks, which earlier leaders have appended.
        """
        own_batches = self.log.appended
        count = len(own_batches)
        if count and count <= len(log.appended) and log.appended[count - 1] is own_batches[-1]:
            # The usual case: both logs have the same batch at this place.
            return
        while count and not log.contains(own_batches[count - 1]):
            count -= 1
        if count < len(own_batches):
            end = own_batches[count - 1].next_offset if count else 0
            self.log.truncate_to(end)
            self.high_watermark = min(self.high_watermark, end)
