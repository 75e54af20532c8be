"""
One seed, one history: a cluster, a query under a supervisor, faults, their end, and the verdict.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from traceback import format_exception
from typing import TYPE_CHECKING

from tests.simulation.kafka import ClusterSettings, SimulatedCluster
from tests.simulation.kafka.image import TRANSACTIONS
from tests.simulation.kafka.releases import NEWEST, Release
from tests.simulation.kernel.network import Network
from tests.simulation.kernel.world import World
from tests.simulation.spark.connector import HOST, PORT, simulated_connector
from tests.simulation.spark.query import (
    Checkpoint,
    ConcurrentUpdateError,
    Definition,
    Executors,
    ProcessLostError,
    Query,
    QueryFailedError,
    StoppedTaskError,
)
from tests.simulation.workloads.producers import PlainClient

from pyspark_pykafka.verify.checker import Verdict

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self

    from tests.simulation.workloads.nemesis import Nemesis

#: After this time nothing fails any more.
FAULT_SECONDS = 45.0
#: Longer than the timeout of the transactions that a stopped attempt may leave open.
DRAIN_SECONDS = 1_200.0
_CHECK_SECONDS = 0.1

_QUERY_ERRORS = (QueryFailedError, ProcessLostError, ConcurrentUpdateError)


class Cluster(SimulatedCluster):
    """
    Adds lookups for the nemesis and the connector's stand-ins.
    """

    def is_alive(self, node: int) -> bool:
        """
        Return whether the controller considers a node alive.
        """
        return node in self._world.controller.image.brokers

    def throttle_seconds(self, node: int) -> float:
        """
        Return for how long a node throttles its clients.
        """
        return self._world.nodes[node].throttle_ms / 1000

    def transactional_ids(self) -> list[str]:
        """
        Return all transactional ids.
        """
        return [
            str(name)
            for shard, log in self._world.shards.items()
            if shard.kind == TRANSACTIONS
            for name in log.values
        ]


@dataclass
class History:
    """
    The simulated world of one seed.
    """

    seed: int
    brokers: int = 3
    is_traced: bool = False
    release: Release = NEWEST
    #: Whether records may be lost, so that the connector may report it.
    may_lose: bool = False
    verdict: Verdict = field(default_factory=Verdict)
    world: World = field(init=False)
    cluster: Cluster = field(init=False)
    network: Network = field(init=False)
    _supervised: list[Supervisor] = field(default_factory=list)
    _collects: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.world = World(self.seed, is_traced=self.is_traced)
        nodes = range(1, self.brokers + 1)
        addresses = {node: (HOST.format(node), PORT) for node in nodes}
        settings = ClusterSettings(addresses=addresses, release=self.release)
        self.cluster = Cluster(self.brokers, self.world, self.world.random, settings)
        by_address = {address: node for node, address in addresses.items()}
        self.network = Network(self.world, self.cluster, by_address)
        # A throttled client that does not wait finds its connection muted (KIP-219).
        self.network.muted_seconds = self.cluster.throttle_seconds
        self.connector = simulated_connector()
        self.connector.start(self.world, self.network, self.cluster)
        self.client = PlainClient(self.world, self.cluster, self.network.down)
        self.executors = Executors(self.connector)

    def __enter__(self) -> Self:
        # The collector would take a fifth of the time, and run finalizers at moments of its own.
        self._collects = gc.isenabled()
        gc.disable()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.world.close()
        # The objects of a history are in the young generation; modules loaded before are not.
        gc.collect(0)
        if self._collects:
            gc.enable()

    @property
    def draw(self) -> random.Random:
        """
        The seed's random numbers.
        """
        return self.world.random

    @property
    def bootstrap(self) -> str:
        """
        Some of the brokers' addresses, in random order.
        """
        nodes = self.draw.sample(range(1, self.brokers + 1), self.draw.randint(1, self.brokers))
        return ",".join(f"{HOST.format(node)}:{PORT}" for node in nodes)

    def supervise(
        self, definition: Definition | Callable[[], Definition], *, after: float = 0.0
    ) -> Supervisor:
        """
        Run a query, from ``after`` seconds on, and again whenever it ends.

        If ``definition`` is a function, it is called before each run, and returns the query.
        """
        supervisor = Supervisor(self, definition, Checkpoint(f"query-{self.seed}"))
        self._supervised.append(supervisor)
        if after:
            self.world.call_later(after, supervisor.start)
        else:
            supervisor.start()
        return supervisor

    def run(self, nemesis: Nemesis, is_drained: Callable[[], bool]) -> None:
        """
        Let faults happen, heal them, and wait until the work is done.

        Adds an anomaly to the verdict if the work does not end (``stuck``), or if the connector
        reports a data loss that cannot have happened or raises an error other than its own.
        """
        nemesis.start()
        self.world.run(lambda: False, FAULT_SECONDS, FAULT_SECONDS)
        self._raise_model_errors()
        nemesis.heal()
        self.verdict.faults = nemesis.count

        def is_over() -> bool:
            # A paused process may still do harm when it resumes.
            return not any(process.is_paused for process in self.world.processes) and is_drained()

        if not self.world.run(is_over, DRAIN_SECONDS, _CHECK_SECONDS):
            waiting = [repr(task) for task in self.world.blocked()][:10]
            failures = [str(error)[:300] for s in self._supervised for error in s.errors[-2:]]
            self.verdict.add("stuck", [*failures, *waiting] or ["the cluster is not at rest"])
        self._raise_model_errors()
        errors = self.connector.module("errors")
        base_error = errors.PykafkaError
        for error in self._connector_errors():
            if isinstance(error, errors.DataLossError) and not self.may_lose:
                self.verdict.add("false data loss", [str(error)[:300]])
            if not isinstance(error, base_error):
                self.verdict.add("unnamed error", ["".join(format_exception(error, limit=-4))])

    def _raise_model_errors(self) -> None:
        """
        Raise errors from outside the connector: they are faults of the simulation itself.
        """
        for process in self.world.processes:
            for task in process.tasks:
                if process.state is None and task.error is not None and process.name != "driver":
                    raise task.error

    def _connector_errors(self) -> Iterator[BaseException]:
        """
        Yield the errors of all threads that run the connector's code.
        """
        for process in self.world.processes:
            for task in process.tasks:
                error = task.error
                if process.state is not None and error is not None:
                    if not isinstance(error, StoppedTaskError):
                        yield error
                elif error is not None and not isinstance(error, _QUERY_ERRORS):
                    yield error


class Supervisor:
    """
    Restarts a query after each end, as a scheduler does.
    """

    def __init__(
        self,
        history: History,
        definition: Definition | Callable[[], Definition],
        checkpoint: Checkpoint,
    ) -> None:
        self._history = history
        self._definition = definition
        self.checkpoint = checkpoint
        self.query: Query | None = None
        self.errors: list[BaseException] = []
        self.strike: Callable[[str, Query], None] | None = None
        self.runs = 0

    def start(self) -> None:
        """
        Start a run, and watch it.
        """
        definition = self._definition
        self.query = Query(
            self._history.connector,
            definition if isinstance(definition, Definition) else definition(),
            self.checkpoint,
            self._history.executors,
            self._at_point,
        )
        self.runs += 1
        self._watch(self.query)

    def _at_point(self, point: str, query: Query) -> None:
        if self.strike is not None:
            self.strike(point, query)

    def _watch(self, query: Query) -> None:
        world = self._history.world
        if query is not self.query:
            # Another driver has taken its place.
            return
        if not query.is_done:
            world.call_later(0.5, lambda: self._watch(query))
            return
        error = query.main.error
        if error is not None:
            world.trace("the query failed: %r", error)
            self.errors.append(error)
        world.call_later(self._history.draw.choice((0.1, 1.0, 5.0, 20.0)), self.start)
