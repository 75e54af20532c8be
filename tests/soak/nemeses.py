"""
The faults of a round; each is injected, and healed before the next one.
"""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

import psutil
from confluent_kafka import ElectionType, KafkaException
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import NewPartitions
from kafka.protocol.admin import AlterPartitionReassignmentsRequest
from tests.soak.rig import SMALL_DISK_BROKER

from pyspark_pykafka.engines.wire.network.connection import Connection
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.settings.wire_config import Address, wire_config
from pyspark_pykafka.testing import KafkaCluster, ServerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from tests.soak.plan import Strike
    from tests.soak.rig import Rig
    from tests.support.proxy import Proxy

    FaultKind = Callable[["Scene", Random], AbstractContextManager[str]]

_PRODUCE, _FETCH, _END_TXN = 0, 1, 26
_REQUEST_SECONDS = 30.0
_STUTTER_SECONDS = 0.02
_CLOCK_JUMPS = (-7200, -30, 45, 7200)


class ChangingTopic(Protocol):
    """
    The topic that is changed while a query reads it.
    """

    def recreate(self) -> None:
        """
        Delete the topic and create it again.
        """

    def add_partition(self) -> None:
        """
        Add a partition, and write to it.
        """

    def elect_uncleanly(self) -> None:
        """
        Elect a leader that lacks the last records.
        """


@dataclass(frozen=True, slots=True)
class Scene:
    """
    The targets of nemeses: the rig, the topics of the round, and the topic that may be changed.
    """

    rig: Rig
    inputs: Sequence[str]
    outputs: Sequence[str]
    changing: ChangingTopic


# --- Brokers --------------------------------------------------------------------------------------


def _broker_fault(
    strike: Callable[[KafkaCluster, int], None], heal: Callable[[KafkaCluster, int], None]
) -> FaultKind:
    @contextmanager
    def fault(scene: Scene, random: Random) -> Iterator[str]:
        node = _broker(random)
        strike(scene.rig.cluster.kafka, node)
        yield f"broker {node}"
        heal(scene.rig.cluster.kafka, node)

    return fault


killed_broker = _broker_fault(KafkaCluster.kill, KafkaCluster.restart)
paused_broker = _broker_fault(KafkaCluster.pause, KafkaCluster.resume)
stopped_broker = _broker_fault(KafkaCluster.stop, KafkaCluster.restart)


@contextmanager
def slow_broker(scene: Scene, random: Random) -> Iterator[str]:
    """
    Suspend a broker nine tenths of the time, with the effect of a very slow disk.
    """
    node, over = _broker(random), threading.Event()
    kafka = scene.rig.cluster.kafka
    name = f"kafka-{node}"

    def stutter() -> None:
        while not over.wait(_STUTTER_SECONDS / 2):
            kafka._group.send(name, signal.SIGSTOP)
            over.wait(9 * _STUTTER_SECONDS / 2)
            kafka._group.send(name, signal.SIGCONT)

    thread = threading.Thread(target=stutter)
    thread.start()
    try:
        yield f"broker {node}"
    finally:
        over.set()
        thread.join()


@contextmanager
def full_disk(scene: Scene, random: Random) -> Iterator[str]:  # noqa: ARG001 (the only small disk)
    disk = scene.rig.disk
    assert disk is not None
    disk.fill()
    yield f"broker {SMALL_DISK_BROKER}"
    disk.free()
    # Kafka takes a failed disk offline for good, and a broker without a disk shuts down.
    scene.rig.cluster.kafka.restart(SMALL_DISK_BROKER)


# --- Network --------------------------------------------------------------------------------------


def _proxy_fault(strike: Callable[[Proxy, Random], None]) -> FaultKind:
    @contextmanager
    def fault(scene: Scene, random: Random) -> Iterator[str]:
        node = _broker(random)
        proxy = scene.rig.cluster.proxies[node]
        strike(proxy, random)
        yield f"broker {node}"
        proxy.heal()

    return fault


def _cut(proxy: Proxy, random: Random) -> None:
    proxy.refuse_connections()
    proxy.disconnect(reset=random.random() < 0.5)


cut_link = _proxy_fault(_cut)
black_hole = _proxy_fault(lambda proxy, _: proxy.black_hole())
dropped_syns = _proxy_fault(lambda proxy, _: proxy.drop_syns())


@contextmanager
def forgotten_connections(scene: Scene, random: Random) -> Iterator[str]:
    for proxy in scene.rig.cluster.proxies.values():
        if random.random() < 0.7:
            proxy.forget_connections()
    yield "open connections"


@contextmanager
def slow_network(scene: Scene, random: Random) -> Iterator[str]:
    delay, rate = random.uniform(0.05, 0.3), random.choice((0, 50_000, 200_000))
    for proxy in scene.rig.cluster.proxies.values():
        proxy.delay, proxy.rate = delay, rate
    yield f"{delay * 1000:.0f} ms, {rate or 'no limit of'} B/s"
    for proxy in scene.rig.cluster.proxies.values():
        proxy.delay, proxy.rate = 0.0, 0


@contextmanager
def lost_responses(scene: Scene, random: Random) -> Iterator[str]:
    keys = random.choice(((_PRODUCE,), (_FETCH,), (_END_TXN,), (_PRODUCE, _FETCH, _END_TXN)))
    node = _broker(random)
    proxy = scene.rig.cluster.proxies[node]
    proxy.drop_responses(keys)
    yield f"broker {node}, API keys {keys}"
    proxy.drop_responses(())
    proxy.disconnect()


# --- Topics ---------------------------------------------------------------------------------------


@contextmanager
def moved_partitions(scene: Scene, random: Random) -> Iterator[str]:
    topics = [*scene.inputs, *scene.outputs]
    moving_topics = random.sample(topics, k=min(3, len(topics)))
    for topic in moving_topics:
        leader = _leader(scene.rig, topic, 0)
        others = [node for node in scene.rig.cluster.proxies if node != leader]
        random.shuffle(others)
        _reassign(scene.rig, topic, 0, others)
    yield ", ".join(moving_topics)
    for topic in moving_topics:
        nodes = sorted(scene.rig.cluster.proxies, key=lambda _: random.random())
        _reassign(scene.rig, topic, 0, nodes)


@contextmanager
def elected_leaders(scene: Scene, random: Random) -> Iterator[str]:
    admin = scene.rig.cluster.kafka.admin()
    topics = random.sample([*scene.inputs, *scene.outputs], k=3)
    for topic in topics:
        nodes = sorted(scene.rig.cluster.proxies, key=lambda _: random.random())
        _reassign(scene.rig, topic, 0, nodes)
        # If the preferred replica already leads, there is no election.
        with suppress(KafkaException):
            admin.elect_leaders(ElectionType.PREFERRED, [Position(topic, 0)]).result(
                _REQUEST_SECONDS
            )
    yield ", ".join(topics)


@contextmanager
def added_partitions(scene: Scene, random: Random) -> Iterator[str]:
    topic = random.choice(scene.outputs)
    admin = scene.rig.cluster.kafka.admin()
    count = len(admin.list_topics(topic, timeout=_REQUEST_SECONDS).topics[topic].partitions)
    added = admin.create_partitions([NewPartitions(topic, count + 1)])
    added[topic].result(_REQUEST_SECONDS)
    scene.changing.add_partition()
    yield f"{topic} and the changing topic"


@contextmanager
def recreated_topic(scene: Scene, random: Random) -> Iterator[str]:  # noqa: ARG001 (the only one)
    scene.changing.recreate()
    yield "the changing topic"


@contextmanager
def unclean_election(scene: Scene, random: Random) -> Iterator[str]:  # noqa: ARG001 (likewise)
    scene.changing.elect_uncleanly()
    yield "the changing topic"


# --- Clocks and processes -------------------------------------------------------------------------


@contextmanager
def clock_jump(scene: Scene, random: Random) -> Iterator[str]:
    clock = scene.rig.clock
    seconds = random.choice(_CLOCK_JUMPS)
    clock.shift(seconds)
    yield f"{seconds:+d} s in the drivers' and executors' Python"
    clock.shift(0)


@contextmanager
def killed_worker(scene: Scene, random: Random) -> Iterator[str]:
    yield _kill_one("a Python worker", [d.workers() for d in scene.rig.drivers.values()], random)


@contextmanager
def killed_executor(scene: Scene, random: Random) -> Iterator[str]:
    yield _kill_one("an executor", [d.executors() for d in scene.rig.drivers.values()], random)


@contextmanager
def killed_planner(scene: Scene, random: Random) -> Iterator[str]:
    planners = [driver.planners() for driver in scene.rig.drivers.values()]
    yield _kill_one("a planning process", planners, random)


@contextmanager
def paused_executor(scene: Scene, random: Random) -> Iterator[str]:
    executors = [
        executor for driver in scene.rig.drivers.values() for executor in driver.executors()
    ]
    processes = [random.choice(executors)] if executors else []
    with suppress(psutil.NoSuchProcess):
        processes += [
            child for process in processes[:1] for child in process.children(recursive=True)
        ]
    _signal_all(processes, signal.SIGSTOP)
    yield "an executor and its Python workers"
    _signal_all(processes, signal.SIGCONT)


@contextmanager
def killed_driver(scene: Scene, random: Random) -> Iterator[str]:  # noqa: ARG001 (only one is killed)
    scene.rig.mortal.kill()
    yield "the driver with its executors"
    scene.rig.mortal.start()


@contextmanager
def paused_driver(scene: Scene, random: Random) -> Iterator[str]:
    driver = random.choice(list(scene.rig.drivers.values()))
    driver.pause()
    yield f"the {driver.name} driver with its executors"
    driver.resume()


@contextmanager
def killed_zookeeper(scene: Scene, random: Random) -> Iterator[str]:  # noqa: ARG001 (the only one)
    scene.rig.zookeeper.kill()
    yield "ZooKeeper"
    scene.rig.zookeeper.restart()


@contextmanager
def paused_zookeeper(scene: Scene, random: Random) -> Iterator[str]:  # noqa: ARG001 (the only one)
    scene.rig.zookeeper.pause()
    yield "ZooKeeper"
    scene.rig.zookeeper.resume()


KINDS: dict[str, FaultKind] = {
    "broker killed": killed_broker,
    "broker paused": paused_broker,
    "broker shut down": stopped_broker,
    "broker slow": slow_broker,
    "disk full": full_disk,
    "link cut": cut_link,
    "black hole": black_hole,
    "SYNs dropped": dropped_syns,
    "connections forgotten": forgotten_connections,
    "network slow": slow_network,
    "responses lost": lost_responses,
    "partitions moved": moved_partitions,
    "leaders elected": elected_leaders,
    "partitions added": added_partitions,
    "topic recreated": recreated_topic,
    "unclean election": unclean_election,
    "clock jump": clock_jump,
    "worker killed": killed_worker,
    "executor killed": killed_executor,
    "executor paused": paused_executor,
    "planner killed": killed_planner,
    "driver killed": killed_driver,
    "driver paused": paused_driver,
    "ZooKeeper killed": killed_zookeeper,
    "ZooKeeper paused": paused_zookeeper,
}


def possible_kinds(rig: Rig) -> tuple[str, ...]:
    """
    Return the faults that can be injected on this machine.
    """
    return tuple(kind for kind in KINDS if rig.disk is not None or kind != "disk full")


@dataclass(frozen=True, slots=True)
class Fault:
    """
    A fault that was injected: its kind, its target, and when it started and ended.
    """

    kind: str
    target: str
    start: float
    end: float

    def to_json(self) -> dict[str, Any]:
        """
        Return the fault as a document.
        """
        return asdict(self)


@dataclass
class Nemesis:
    """
    Strikes as planned until the time is up; an error of the rig ends it.
    """

    scene: Scene
    strikes: Sequence[Strike]
    say: Callable[[str], None]
    faults: list[Fault] = field(default_factory=list)

    def run(self, deadline: Deadline) -> None:
        """
        Strike; the last fault may last longer than the deadline.
        """
        for strike in self.strikes:
            time.sleep(max(0.0, min(strike.pause, deadline.remaining())))
            if deadline.expired:
                return
            self._strike(strike, deadline)

    def _strike(self, strike: Strike, deadline: Deadline) -> None:
        start = time.time()
        with KINDS[strike.kind](self.scene, Random(strike.seed)) as target:
            self.say(f"{strike.kind}: {target}")
            time.sleep(max(0.0, min(strike.seconds, deadline.remaining())))
        self.faults.append(Fault(strike.kind, target, start, time.time()))
        self.say(f"{strike.kind}: healed after {time.time() - start:.0f} s")


# --- Parts ----------------------------------------------------------------------------------------


def _broker(random: Random) -> int:
    return random.choice((1, 2, 3))


def _kill_one(victim: str, groups: Sequence[Sequence[psutil.Process]], random: Random) -> str:
    processes = [process for group in groups for process in group]
    if not processes:
        return f"{victim}, but there was none"
    with suppress(psutil.NoSuchProcess):
        random.choice(processes).kill()
    return victim


def _signal_all(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _leader(rig: Rig, topic: str, partition: int) -> int:
    metadata = rig.cluster.kafka.admin().list_topics(topic, timeout=_REQUEST_SECONDS)
    return int(metadata.topics[topic].partitions[partition].leader)


def _reassign(rig: Rig, topic: str, partition: int, nodes: Sequence[int]) -> None:
    """
    Request other replicas for a partition; the brokers copy the records.
    """
    kafka = rig.cluster.kafka
    topic_type = AlterPartitionReassignmentsRequest.ReassignableTopic
    assignment = topic_type.ReassignablePartition(partition_index=partition, replicas=list(nodes))
    host, port = kafka.running_addresses()[0].split(":")
    config = wire_config(KafkaSettings.of({"bootstrap.servers": kafka.bootstrap}))
    deadline = Deadline.after(_REQUEST_SECONDS)
    connection = Connection.open(Address(host, int(port)), config, deadline)
    try:
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=30_000,
            topics=[topic_type(name=topic, partitions=[assignment])],
            version=connection.version(AlterPartitionReassignmentsRequest, 0),
        )
        response = connection.request(request, deadline)
    finally:
        connection.close()
    codes = [result.error_code for topic in response.responses for result in topic.partitions]
    if codes != [0]:
        msg = f"moving {topic}-{partition} to {list(nodes)}: error codes {codes}"
        raise ServerError(msg)
