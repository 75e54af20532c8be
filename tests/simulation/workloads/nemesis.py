"""
Faults at times drawn from the seed.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.kafka.codes import RequestError
from tests.simulation.kafka.transaction_state import ONGOING
from tests.simulation.kernel.world import Signal

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.kernel.network import Connection
    from tests.simulation.kernel.world import Process
    from tests.simulation.spark.query import Query
    from tests.simulation.workloads.history import History, Supervisor

_MEAN_PAUSE_SECONDS = 4.0
_FORGETTING_SECONDS = 3.0
_END_TXN = 26
_OVERTAKING_CHANCE = 0.01
_OVERTAKEN_SECONDS = 60.0
# The maximum time by which the tasks of the successor precede those of the overtaken driver.
_MAX_LEAD_SECONDS = 0.15
# The successor repeats the batch of the overtaken driver, and then plans the next one.
_PLANS_OF_SUCCESSOR = 2
_MAX_ABORT_SECONDS = 30.0
# Most faults matter between the first and the last EndTxn.
_COMMIT_WEIGHT = 6.0


@dataclass
class Nemesis:
    """
    Draws one fault after another from those that a workload names, until :meth:`heal` is called.
    """

    history: History
    supervisors: list[Supervisor]
    topics: list[tuple[str, int]]
    faults: tuple[str, ...]
    #: The chance of a fault at each point of a query; most of these faults hit the query's driver.
    strike_chance: float = 0.0
    #: The chance before the first micro-batch is complete, if it is greater.
    first_strike_chance: float = 0.0
    #: The chance that one of the open transactions times out just before a commit.
    timeout_chance: float = 0.0
    #: The chance that a strike cuts the committer off, and whether the committer's requests are
    #: lost then.
    cut_off_chance: float = 0.2
    loses_requests: bool = False
    #: Faults of the workload itself.
    extra_faults: dict[str, Callable[[], None]] = field(default_factory=dict)
    count: int = 0
    _is_healed: bool = field(default=False, init=False)
    #: Random numbers of their own for rare faults, so that other histories stay the same.
    _rare: Random = field(init=False)
    #: The end of the last "isolate and forget".
    _forgets_until: float = field(default=0.0, init=False)
    _overtaken: Query | None = field(default=None, init=False)
    _plans_until_resumed: int = field(default=0, init=False)
    #: When each query planned its micro-batch, in milliseconds since 1970.
    _planned_ms: dict[Query, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._rare = Random(f"rare faults {self.history.seed}")

    def start(self) -> None:
        """
        Begin to inject faults.
        """
        for supervisor in self.supervisors:
            supervisor.strike = self._strike
        self._next()

    def heal(self) -> None:
        """
        End all faults.
        """
        history = self.history
        self._is_healed = True
        history.world.trace("healed")
        history.network.heal()
        history.cluster.heal()
        for node in history.cluster.node_ids:
            self._start_broker(node)
            history.cluster.throttle(node, 0)
            history.cluster.forget_topics(node, 0.0)
        for topic, _ in self.topics:
            history.cluster.tiered(topic, 0.0)
            history.cluster.refuse_writes(topic, 0.0)

    def _next(self) -> None:
        pause = self.history.draw.expovariate(1 / _MEAN_PAUSE_SECONDS)
        self.history.world.call_later(pause, self._attack)

    def _attack(self) -> None:
        if self._is_healed:
            return
        name = self.history.draw.choice((*self.faults, *self.extra_faults))
        self.count += 1
        self.history.world.trace("fault: %s", name)
        actions: dict[str, Callable[[], None]] = {
            "crash": self._crash,
            "pause broker": self._pause_broker,
            "isolate": self._isolate,
            "move leader": self._move_leader,
            "late leader": self._late_leader,
            "forget topics": self._forget_topics,
            "isolate and forget": self._isolate_and_forget,
            "move coordinator": self.move_coordinators,
            "lag": self._lag,
            "cut": lambda: self._link("is_cut"),
            "drop responses": lambda: self._link("drops_responses"),
            "refuse": lambda: self._link("refuses"),
            "slow": self._slow,
            "reset": self._reset,
            "forget connections": self._forget_connections,
            "black hole": self._black_hole,
            "set clock": self._set_clock,
            "throttle": self._throttle,
            "tiered": self._tiered,
            "kill worker": self._kill_worker,
            "pause worker": self._pause_worker,
            "kill driver": self.kill_driver,
            "pause driver": self._pause_driver,
            "replace driver": self._replace_driver,
            **self.extra_faults,
        }
        actions[name]()
        self._next()

    # --- Brokers ----------------------------------------------------------------------------------

    def _node(self) -> int:
        return self.history.draw.choice(self.history.cluster.node_ids)

    def _crash(self) -> None:
        history = self.history
        if history.network.down:
            return
        node = self._node()
        history.world.trace("broker %d crashes", node)
        history.cluster.crash(node)
        history.network.down.add(node)
        history.network.reset(node)
        history.world.call_later(history.draw.uniform(0.5, 20.0), lambda: self._start_broker(node))

    def _start_broker(self, node: int) -> None:
        if node in self.history.network.down:
            self.history.world.trace("broker %d starts", node)
            self.history.network.down.discard(node)
            self.history.cluster.start(node)

    def _pause_broker(self) -> None:
        node = self._node()
        self.history.cluster.pause(node, self.history.draw.choice((0.5, 3.0, 12.0)))

    def _isolate(self) -> None:
        history = self.history
        node = self._node()
        history.world.trace("broker %d is isolated", node)
        history.cluster.isolate(node)
        history.world.call_later(history.draw.uniform(5.0, 30.0), history.cluster.heal)

    def _partition(self) -> tuple[str, int]:
        topic, partitions = self.history.draw.choice(self.topics)
        return topic, self.history.draw.randrange(partitions)

    def _move_leader(self, held_seconds: float = 0.0) -> None:
        cluster, (topic, partition) = self.history.cluster, self._partition()
        if not cluster.has_topic(topic):
            return
        others = [
            node
            for node in cluster.in_sync(topic, partition)
            if node != cluster.leader(topic, partition) and cluster.is_alive(node)
        ]
        if others:
            node = self.history.draw.choice(others)
            cluster.move_leader(topic, partition, node, held_seconds=held_seconds)

    def _late_leader(self) -> None:
        self._move_leader(self.history.draw.uniform(0.2, 3.0))

    def _forget_topics(self) -> None:
        draw, cluster = self.history.draw, self.history.cluster
        if draw.random() < 0.7:
            cluster.forget_topics(self._node(), draw.choice((0.1, 1.0, 4.0)))
            return
        # The leader moves, too, so that readers request metadata.
        for node in cluster.node_ids:
            cluster.forget_topics(node, 0.2)
        self._move_leader()

    def _isolate_and_forget(self) -> None:
        """
        Cut a leader off. Once another broker leads, each of the others in turn knows no topics, as
        during a rolling restart; at any time one of them knows the topics.
        """
        history, cluster, (topic, partition) = self.history, self.history.cluster, self._partition()
        if history.world.elapsed < self._forgets_until:
            return
        if not cluster.has_topic(topic) or cluster.leader(topic, partition) < 0:
            return
        leader = cluster.leader(topic, partition)
        history.world.trace("broker %d is isolated", leader)
        cluster.isolate(leader)
        others = [node for node in cluster.node_ids if node != leader]

        def forget(node: int) -> None:
            if not self._is_healed:
                history.world.trace("broker %d forgets its topics", node)
                cluster.forget_topics(node, _FORGETTING_SECONDS)

        first = history.draw.uniform(9.0, 12.0)
        for number in range(4):
            node = others[number % len(others)]
            history.world.call_later(first + 4.0 * number, partial(forget, node))
        history.world.call_later(first + 16.0, cluster.heal)
        self._forgets_until = history.world.elapsed + first + 16.0

    def _lag(self) -> None:
        cluster, (topic, partition) = self.history.cluster, self._partition()
        if cluster.has_topic(topic):
            node = self.history.draw.choice(cluster.replicas(topic, partition))
            cluster.lag_replica(topic, partition, node, self.history.draw.uniform(0.5, 10.0))

    def move_coordinators(self) -> None:
        """
        Move the coordinators of some transactional ids to other brokers.
        """
        cluster = self.history.cluster
        for name in cluster.transactional_ids():
            if self.history.draw.random() < 0.3:
                cluster.move_coordinator(name)

    def _throttle(self) -> None:
        node, seconds = self._node(), self.history.draw.uniform(1.0, 8.0)
        self.history.cluster.throttle(node, self.history.draw.choice((20, 200, 1_000, 7_000)))
        self.history.world.call_later(seconds, lambda: self.history.cluster.throttle(node, 0))

    def _tiered(self) -> None:
        topic, _ = self._partition()
        draw = self.history.draw
        chance, longest = draw.choice((0.3, 0.7, 0.95)), draw.choice((0.0, 0.0, 1.0, 6.0))
        self.history.cluster.tiered(topic, chance, longest)
        seconds = self.history.draw.uniform(1.0, 6.0)
        self.history.world.call_later(seconds, lambda: self.history.cluster.tiered(topic, 0.0))

    # --- The network ------------------------------------------------------------------------------

    def _link(self, attribute: str) -> None:
        history = self.history
        process = history.draw.choice([None, *self._process_names()])
        link = history.network.link(self._node(), process)
        setattr(link, attribute, True)
        history.world.trace("%s: %s", attribute, process)

        def restore() -> None:
            setattr(link, attribute, False)
            for connection in tuple(history.network.connections):
                connection.flush()

        history.world.call_later(history.draw.choice((0.3, 2.0, 8.0, 25.0)), restore)

    def cut_off(self, process: str) -> None:
        """
        Cut the links of a process to all brokers, or drop the brokers' responses to it, for longer
        than most timeouts.
        """
        history = self.history
        links = [history.network.link(node, process) for node in history.cluster.node_ids]
        attribute = history.draw.choice(("is_cut", "drops_responses"))
        history.world.trace("%s: %s", attribute, process)
        for link in links:
            setattr(link, attribute, True)

        def restore() -> None:
            for link in links:
                setattr(link, attribute, False)
            for connection in tuple(history.network.connections):
                connection.flush()

        history.world.call_later(history.draw.choice((5.0, 10.0, 14.0, 25.0)), restore)

    def _slow(self) -> None:
        link = self.history.network.link(self._node())
        link.delay = self.history.draw.choice((0.02, 0.2, 1.0))

        def restore() -> None:
            link.delay = 0.0

        self.history.world.call_later(self.history.draw.uniform(1.0, 8.0), restore)

    def _reset(self) -> None:
        self.history.network.reset(self._node())

    def _forget_connections(self) -> None:
        """
        Drop all data sent on open connections, as a firewall that has lost their state does.
        """
        self._forget(self._node(), self.history.draw.choice([None, *self._process_names()]))

    def _black_hole(self) -> None:
        """
        Drop all packets for a while; dropped packets are never delivered.
        """
        history = self.history
        node, process = self._node(), history.draw.choice([None, *self._process_names()])
        link = history.network.link(node, process)
        link.is_cut = True
        history.world.trace("black hole: %s, broker %d", process, node)

        def restore() -> None:
            link.is_cut = False
            self._forget(node, process)

        history.world.call_later(history.draw.choice((1.0, 8.0, 25.0)), restore)

    def _forget(self, node: int, process: str | None) -> None:
        for connection in tuple(self.history.network.connections):
            if connection.node == node and process in {None, connection.process.name}:
                connection.lose()

    # --- Processes --------------------------------------------------------------------------------

    def _set_clock(self) -> None:
        """
        Let the wall clock of one process jump, or the clocks of all processes.
        """
        history = self.history
        processes = [process for q in self._queries() for process in (q.planner, q.committer)]
        processes += history.executors.workers()
        if history.draw.random() < 0.5:
            processes = processes and [history.draw.choice(processes)]
        jump = history.draw.choice((-1800.0, -20.0, 20.0, 1800.0))
        for process in processes:
            process.clock_offset += jump
            history.world.trace("clock of %s: %+.0f s", process.name, process.clock_offset)

    def _process_names(self) -> list[str]:
        names = ["planner", "committer"]
        return names + [process.name for process in self.history.executors.workers()]

    def _kill_worker(self) -> None:
        workers = self.history.executors.workers()
        if workers:
            self.history.draw.choice(workers).kill()

    def _pause_worker(self) -> None:
        workers = self.history.executors.workers()
        if workers:
            seconds = self.history.draw.choice((0.5, 5.0, 30.0))
            self.history.draw.choice(workers).pause(seconds)

    def _queries(self) -> list[Query]:
        return [s.query for s in self.supervisors if s.query is not None and not s.query.is_done]

    def kill_driver(self) -> None:
        """
        Kill the drivers of all queries.
        """
        for query in self._queries():
            self.history.world.trace("the driver is killed")
            query.kill()

    def _pause_driver(self) -> None:
        for query in self._queries():
            self._pause(query, self.history.draw.choice((0.5, 5.0, 40.0)))

    def _replace_driver(self) -> None:
        """
        Start a second driver while the first one is paused, as a scheduler does if it considers the
        first one dead.
        """
        for query in self._queries():
            self._replace(query)

    def _replace(self, query: Query) -> None:
        supervisor = next(s for s in self.supervisors if s.query is query)
        self._pause(query, self.history.draw.choice((1.0, 5.0, 40.0)) * self.history.draw.random())
        supervisor.start()

    def _pause(self, query: Query, seconds: float) -> None:
        for process in _processes(query):
            process.pause(seconds)

    def _overtake(self, query: Query) -> None:
        """
        Pause a driver that has planned a batch until a second one plans the batch after it: then
        both write.
        """
        if query not in self._queries():
            return
        self.count += 1
        self.history.world.trace("the driver is overtaken")
        self._overtaken, self._plans_until_resumed = query, _PLANS_OF_SUCCESSOR
        supervisor = next(s for s in self.supervisors if s.query is query)
        self._pause(query, _OVERTAKEN_SECONDS)
        supervisor.start()

    def _plan(self, query: Query) -> None:
        """
        Let the driver that plans a batch be overtaken, or resume the driver that it has overtaken.
        """
        history, overtaken = self.history, self._overtaken
        if overtaken is None:
            may_overtake = "replace driver" in self.faults and not self._is_healed
            if may_overtake and self._rare.random() < _OVERTAKING_CHANCE:
                self._overtake(query)
        elif query is not overtaken:
            self._plans_until_resumed -= 1
            if not self._plans_until_resumed:
                self._overtaken = None
                delay = self._rare.uniform(0.0, _MAX_LEAD_SECONDS)
                history.world.call_later(delay, lambda: _resume(overtaken))

    def _strike(self, point: str, query: Query) -> None:
        if point == "partitions":
            self._planned_ms[query] = int(self.history.world.now() * 1000)
            self._plan(query)
        draw, world = self.history.draw, self.history.world
        if point == "commit" and not self._is_healed and self._rare.random() < self.timeout_chance:
            self._time_out_transaction(query)
        chance = self.strike_chance * (_COMMIT_WEIGHT if point == "commit" else 1.0)
        if query.is_new:
            chance = max(chance, self.first_strike_chance)
        if self._is_healed or draw.random() > chance:
            return
        self.count += 1
        if point == "commit" and draw.random() < 0.7:
            self._strike_end_txn(query, draw.randint(1, 4))
            return
        if point == "partitions" and "late leader" in self.faults and draw.random() < 0.5:
            # The planned end may be beyond the high watermark that the new leader knows.
            self._late_leader()
            return
        delay = draw.choice((0.0, 0.001, 0.005, 0.02, 0.1)) * draw.random()
        world.trace("strike at %s, after %.4f s", point, delay)
        world.call_later(delay, lambda: self._strike_driver(query))

    def _strike_end_txn(self, query: Query, number: int) -> None:
        """
        Strike when a coordinator is about to handle the n-th EndTxn of a micro-batch.
        """
        remaining = number

        def on_request(connection: Connection, request: bytes) -> None:
            nonlocal remaining
            if connection.process is query.committer and _api_key(request) == _END_TXN:
                remaining -= 1
                if remaining == 0:
                    self.history.world.trace("strike at EndTxn %d", number)
                    self.history.network.on_request = lambda *_: None
                    self._strike_driver(query)

        self.history.network.on_request = on_request

    def _strike_driver(self, query: Query) -> None:
        """
        Kill a driver, with or without its data in flight, cut it off, or start a second one.
        """
        history = self.history
        if query.is_done or self._is_healed:
            return
        if history.draw.random() < self.cut_off_chance:
            if self.loses_requests:
                self._lose_requests(query)
            self.cut_off("committer")
            return
        if history.draw.random() < 0.3 and query in self._queries():
            self._replace(query)
            return
        if history.draw.random() < 0.7:
            self._lose_requests(query)
        query.kill()

    def _lose_requests(self, query: Query) -> None:
        """
        Drop the committer's data in flight, in both directions.
        """
        for connection in tuple(self.history.network.connections):
            if connection.process is query.committer:
                connection.lose()

    def _time_out_transaction(self, query: Query) -> None:
        """
        Let one of the query's open transactions time out before its commit, and wait until the
        coordinator has decided to abort it.

        A micro-batch is unavoidably committed in part if a transaction times out after its commit
        was decided. So nothing times out while a second driver runs, and the transactions of
        earlier runs are spared: their commit may be decided.
        """
        if any(other is not query and not other.is_done for other in self._planned_ms):
            return
        world, cluster = self.history.world, self.history.cluster
        states = {name: cluster.transaction(name) for name in cluster.transactional_ids()}
        names = sorted(
            name
            for name, state in states.items()
            if state
            and state.state == ONGOING
            and state.started_ms >= self._planned_ms[query]
            and cluster.is_alive(cluster.coordinator(name))
        )
        if not names:
            return
        name, ended = self._rare.choice(names), Signal(world)
        is_over = False

        def end() -> None:
            nonlocal is_over
            is_over = True
            ended.notify()

        world.trace("%s times out", name)
        with suppress(RequestError):
            cluster.time_out_transaction(name, end)
            # Longer than any write to the coordinators' log.
            world.wait(lambda: is_over, _MAX_ABORT_SECONDS, ended)


def _resume(query: Query) -> None:
    for process in _processes(query):
        process.resume()


def _processes(query: Query) -> tuple[Process, ...]:
    """
    Return the processes of a query's driver.
    """
    return query.driver, query.planner, query.committer


def _api_key(request: bytes) -> int:
    return int.from_bytes(request[:2], "big")
