"""
A progress store with latency, failures, lost responses and late writes, which checks each write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.kernel.world import Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tests.simulation.spark.connector import Connector

    from pyspark_pykafka.verify.checker import Verdict


class ProgressServer:
    """
    The shared state of a query's processes: the records and their owner.
    """

    def __init__(self, connector: Connector, verdict: Verdict) -> None:
        self.connector = connector
        self.records: dict[Any, Any] = {}
        self.holder: Any = None
        self.completed: Callable[[], Mapping[tuple[str, int], int]] = dict
        self.failure_chance = 0.02
        self.max_seconds = 0.02
        #: Kills the driver that has just sent a write; that write arrives after a long time.
        self.kill_writer: Callable[[], None] | None = None
        #: How many writes of dead drivers have not arrived yet.
        self.late_writes = 0
        self._verdict = verdict

    def connect(self) -> SimulatedStore:
        """
        Return one process's client.
        """
        return SimulatedStore(self)

    def fail(self) -> None:
        """
        Let half of the calls or all of them fail for a while, before or after they have taken
        effect.
        """
        world = self.connector.world()
        self.failure_chance = world.random.choice((0.5, 1.0))
        world.call_later(world.random.uniform(0.5, 10.0), self.heal)

    def slow_down(self) -> None:
        """
        Let each call take up to several seconds, for a while.
        """
        world = self.connector.world()
        self.max_seconds = world.random.choice((1.0, 10.0))
        world.call_later(world.random.uniform(1.0, 15.0), self.heal)

    def kill_next_writer(self, kill: Callable[[], None]) -> None:
        """
        Let the driver die in the middle of its next write.
        """
        self.kill_writer = kill

    def hold(self, write: Callable[[], object]) -> None:
        """
        Kill the driver, and carry out its write later, when its successor has probably written.
        """
        world, kill = self.connector.world(), self.kill_writer
        assert kill is not None
        self.kill_writer = None
        self.late_writes += 1

        def arrive() -> None:
            world.trace("store: a late write arrives")
            self.late_writes -= 1
            try:
                write()
            except self.connector.module("progress.store").ClaimLostError as error:
                world.trace("store: it is refused: %s", error)

        world.call_later(world.random.choice((0.5, 10.0, 30.0)) * world.random.random(), arrive)
        kill()

    def heal(self) -> None:
        """
        Let calls be fast and rarely fail again.
        """
        self.failure_chance, self.max_seconds = 0.02, 0.02

    def end_faults(self) -> None:
        """
        Heal the store, and let no further driver die.
        """
        self.heal()
        self.kill_writer = None

    def offsets(self) -> dict[tuple[str, int], int]:
        """
        Return the recorded offsets.
        """
        return {tuple(tp): record.offset for tp, record in self.records.items()}

    def apply(self, records: Mapping[Any, Any]) -> None:
        """
        Store records, and check them.
        """
        world, completed = self.connector.world(), self.completed()
        for tp, record in records.items():
            world.trace("store: %s at %d", tp, record.offset)
            earlier = self.records.get(tp)
            if earlier is not None and record.offset < earlier.offset:
                self._verdict.add("progress went back", [(tp, earlier.offset, record.offset)])
            if record.offset > completed.get(tuple(tp), 0):
                self._verdict.add("progress ahead", [(tp, record.offset, dict(completed))])
            self.records[tp] = record


class SimulatedStore:
    """
    A client that follows the contract of ``progress/store.py``.
    """

    def __init__(self, server: ProgressServer) -> None:
        self._server = server
        self._owner: Any = None
        self._contract = server.connector.module("progress.store")
        self._errors = server.connector.module("errors")

    def claim(self, owner: Any, topics: Iterable[str]) -> Any:  # noqa: ARG002 (the contract's)
        """
        Claim the store.
        """
        return self._call(lambda: self._claim(owner))

    def write(self, records: Mapping[Any, Any]) -> None:
        """
        Write records, unless another process has claimed the store.
        """
        server = self._server
        if records and server.kill_writer is not None:
            owner = self._owner
            server.hold(lambda: self._write(records, owner))
            # The process has ended; its threads do not run again.
            server.connector.world().wait(lambda: False, None, Signal(server.connector.world()))
        self._call(lambda: self._write(records, self._owner))

    def keep_alive(self) -> None:
        """
        Check the claim.
        """
        self._call(lambda: self._write({}, self._owner))

    def close(self) -> None:
        """
        Do nothing: the records are kept.
        """

    def _claim(self, owner: Any) -> Any:
        server = self._server
        self._owner = self._contract.next_owner(owner, server.holder)
        server.holder = self._owner
        return self._contract.StoreClaim(self._owner, dict(server.records))

    def _write(self, records: Mapping[Any, Any], owner: Any) -> None:
        if not self._is_holder(owner):
            msg = "the store has another owner"
            raise self._contract.ClaimLostError(msg)
        self._server.apply(records)

    def _is_holder(self, owner: Any) -> bool:
        """
        Return whether the present owner sent a write, which real stores check by the generation of
        a consumer group or the version of a ZooKeeper node.
        """
        return bool(self._server.holder == owner)

    def _call(self, action: Callable[[], Any]) -> Any:
        """
        Run an action after a delay, then return its result or fail.
        """
        server = self._server
        world = server.connector.world()
        world.sleep(world.random.random() * server.max_seconds)
        is_lost = world.random.random() < server.failure_chance
        # Half of the failed calls have taken effect: only the response is lost.
        if is_lost and world.random.random() < 0.5:
            self._raise_unavailable()
        result = action()
        world.sleep(world.random.random() * server.max_seconds)
        if is_lost:
            self._raise_unavailable()
        return result

    def _raise_unavailable(self) -> None:
        msg = "the store is down"
        raise self._errors.BrokerUnavailableError(msg)
