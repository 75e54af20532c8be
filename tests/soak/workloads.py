"""
The workloads of a round: their queries, and the comparison of their output with the truth.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position
from kazoo.client import KazooClient
from tests.soak import plan, truth
from tests.soak.feeds import COMMITTED_ONLY, SECONDS
from tests.soak.verdicts import (
    ProgressWatch,
    WorkloadResult,
    check_kept,
    check_output,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.soak.drivers import Driver
    from tests.soak.feeds import Feed
    from tests.soak.rig import Rig
    from tests.soak.truth import SourceRecord, Truth

    from pyspark_pykafka.verify.records import ReadRow

TRIGGER = "3 seconds"
MAX_OFFSETS = 3_000
#: The minimum number of records that a workload must have read for the round to count.
MIN_ROWS = 100
_REQUEST_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Inputs:
    """
    The contents of the input topics after a round.
    """

    records: Mapping[str, Sequence[SourceRecord]]
    truths: Mapping[str, Truth]


@dataclass
class SoakQuery:
    """
    One query of a workload; ``feeds`` are its inputs, if the soak writes them.
    """

    name: str
    shape: str
    driver: Driver
    folder: Path
    topics: list[str]
    feeds: list[Feed]
    source: dict[str, str]
    sink: dict[str, str] | None
    #: The errors after which it was restarted.
    failures: list[str] = field(default_factory=list)
    ended: str | None = None
    is_finished: bool = False
    rows: dict[int, int] = field(default_factory=dict)
    late_rows: int = 0
    #: The micro-batches whose replay had different rows.
    changed_batches: list[int] = field(default_factory=list)

    @property
    def checkpoint(self) -> Path:
        """
        Spark's checkpoint.
        """
        return self.folder / "checkpoint"

    @property
    def kept(self) -> Path:
        """
        The folder of the sink that keeps micro-batches.
        """
        return self.folder / "kept"

    def start(self) -> None:
        """
        Start the query in its driver.
        """
        self.kept.mkdir(parents=True)
        self.driver.run(self.name, self.document())

    def document(self) -> dict[str, Any]:
        """
        Return the query in the form that the driver expects.
        """
        sink = self.sink
        if sink is not None:
            sink = {**sink, "checkpointLocation": str(self.checkpoint)}
        return {
            "name": self.name,
            "shape": self.shape,
            "topics": self.topics,
            "source": self.source,
            "sink": sink,
            "checkpoint": str(self.checkpoint),
            "kept": str(self.kept),
            "trigger": TRIGGER,
            "keys": truth.KEYS,
            "window": truth.WINDOW,
            "delay": truth.DELAY,
            "rows_per_batch": truth.ROWS_PER_BATCH,
        }

    def process(self, event: Mapping[str, Any]) -> None:
        """
        Process an event from the driver.
        """
        kind = event["event"]
        if kind == "progress":
            self.rows[event["batch"]] = event["rows"]
            self.late_rows += event["late"]
        elif kind == "failure":
            self.failures.append(event["error"])
        elif kind == "ended":
            self.ended = event["error"]
        elif kind == "finished":
            self.is_finished = True
        elif kind == "replay differs":
            self.changed_batches.append(event["batch"])

    def has_read(self, ends: Mapping[str, Mapping[int, int] | None]) -> bool:
        """
        Return whether Spark has committed all micro-batches up to these ends of the query's topics.
        """
        committed = self.committed_ends()
        if len(committed) < len(self.topics):
            return False
        return all(
            (end := ends.get(topic)) is not None
            and all(done.get(partition, 0) >= offset for partition, offset in end.items())
            for topic, done in zip(self.topics, committed, strict=True)
        )

    def committed_ends(self) -> list[dict[int, int]]:
        """
        Return the end offsets of the last committed micro-batch, for each source.
        """
        last = truth.committed_batch(self.checkpoint)
        return truth.batch_ends(self.checkpoint, last) if last >= 0 else []

    def kept_batches(self) -> list[list[ReadRow]]:
        """
        Return the micro-batches that the sink has kept, in order.
        """
        files = sorted(self.kept.glob("[0-9]*.json"), key=lambda file: int(file.stem))
        return [
            [
                truth.kept_row(text.encode(), index, int(file.stem))
                for index, text in enumerate(json.loads(file.read_text()))
            ]
            for file in files
        ]


@dataclass
class Workload:
    """
    A workload in one round: its queries in the order of the data, and the store of its progress.
    """

    name: str
    shape: str
    guarantee: str
    driver: Driver
    queries: list[SoakQuery]
    output: str | None = None
    watch: ProgressWatch | None = None
    store: Store | None = None
    drained_seconds: float = 0.0

    @property
    def is_finished(self) -> bool:
        """
        Whether all queries have written everything and stopped.
        """
        return all(query.is_finished for query in self.queries)

    def result(self, rig: Rig, inputs: Inputs) -> WorkloadResult:
        """
        Compare the output with the truth.
        """
        result = WorkloadResult(self.name, self.shape, self.guarantee, self.driver.name)
        result.failures = sum(len(query.failures) for query in self.queries)
        result.rows = sum(sum(query.rows.values()) for query in self.queries)
        result.drained_seconds = self.drained_seconds
        self._check_queries(result)
        expected = self._truth(inputs)
        if self.output is None:
            verdict = check_kept(
                expected,
                self.queries[-1].kept_batches(),
                is_ordered=self.shape == "plain",
                is_finished=self.is_finished,
            )
        else:
            records = rig.cluster.kafka.consume(self.output, COMMITTED_ONLY, SECONDS)
            rows = [truth.output_row(r.partition or 0, r.offset or 0, r.value) for r in records]
            verdict = check_output(
                expected,
                rows,
                exactly_once=self.guarantee == plan.EXACTLY_ONCE,
                is_ordered={query.shape for query in self.queries} == {"plain"},
                is_finished=self.is_finished,
            )
        result.add(verdict)
        if result.rows < MIN_ROWS or not result.records:
            result.void = f"only {result.rows} rows were read, {result.records} were expected"
        return result

    def _check_queries(self, result: WorkloadResult) -> None:
        for query in self.queries:
            if not query.is_finished:
                (last_error,) = query.failures[-1:] or ["no error"]
                result.anomaly("hung", f"{query.name} had not finished in time: {last_error}")
            if query.ended is not None:
                result.anomaly("ended", f"{query.name}: {query.ended[:2_000]}")
            if query.changed_batches:
                result.anomaly("replay differs", f"{query.name}: batches {query.changed_batches}")
            if query.late_rows:
                text = f"{query.name}: {query.late_rows} dropped by the watermark"
                result.anomaly("late rows", text)
        if self.watch is not None:
            for kind, texts in self.watch.anomalies.items():
                for text in texts:
                    result.anomaly(kind, text)
            if not self.watch.samples:
                result.void = "its progress was never read"

    def _truth(self, inputs: Inputs) -> Truth:
        """
        Return the expected output of the last query.
        """
        first, shape = self.queries[0], self.queries[0].shape
        labels = [feed.label for feed in first.feeds]
        if shape == "rate":
            return truth.rated(
                truth.committed_batch(first.checkpoint) + 1,
                truth.planned_batch(first.checkpoint) + 1,
            )
        if shape == "windowed":
            return truth.windowed(inputs.records[labels[0]])
        if shape == "join":
            return truth.joined(inputs.records[labels[0]], inputs.records[labels[1]])
        if shape == "complete":
            ends = truth.committed_ends(first.checkpoint)
            (label,) = labels
            return truth.complete(inputs.records[label], {n: end[0] for n, end in ends.items()})
        return truth.forwarded(inputs.truths[label] for label in labels)


# --- Progress stores, read by plain clients -------------------------------------------------------


@dataclass
class Store:
    """
    Where a query records its progress; a plain client reads it.
    """

    topic: str

    def read(self) -> dict[int, int]:
        """
        Return the recorded offsets; raises the client's error if the store is down.
        """
        raise NotImplementedError

    def close(self) -> None:
        """
        Close the client.
        """


class GroupStore(Store):
    """
    A consumer group.
    """

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int) -> None:
        super().__init__(topic)
        self._positions = [Position(topic, number) for number in range(partitions)]
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0}
        )

    def read(self) -> dict[int, int]:
        committed = self._consumer.committed(self._positions, timeout=_REQUEST_SECONDS)
        return {
            position.partition: position.offset for position in committed if position.offset >= 0
        }

    def close(self) -> None:
        self._consumer.close()


class ZooKeeperStore(Store):
    """
    ZooKeeper's nodes.
    """

    def __init__(self, hosts: str, name: str, topic: str) -> None:
        super().__init__(topic)
        self._base = f"/pykafka/{name}/{topic}"
        self._client = KazooClient(hosts)
        self._client.start_async()

    def read(self) -> dict[int, int]:
        client = self._client
        if not client.connected:
            raise ConnectionError("ZooKeeper is not connected")
        if client.exists_async(self._base).get(timeout=_REQUEST_SECONDS) is None:
            return {}
        offsets = {}
        for node in client.get_children_async(self._base).get(timeout=_REQUEST_SECONDS):
            data, _ = client.get_async(f"{self._base}/{node}").get(timeout=_REQUEST_SECONDS)
            offsets[int(node.rpartition("_")[2])] = int(json.loads(data)["offset"])
        return offsets

    def close(self) -> None:
        self._client.stop()
        self._client.close()


# --- Making the workloads -------------------------------------------------------------------------


def make_workloads(
    rig: Rig, round_plan: plan.RoundPlan, folder: Path, feeds: Mapping[str, Feed]
) -> list[Workload]:
    """
    Make the workloads of a round; their output topics must be created before they start.
    """
    return [_Maker(rig, round_plan, folder, feeds, name).make() for name in round_plan.shapes]


@dataclass
class _Maker:
    rig: Rig
    round_plan: plan.RoundPlan
    folder: Path
    feeds: Mapping[str, Feed]
    name: str

    def make(self) -> Workload:
        shape = self.round_plan.shapes[self.name]
        driver = self.rig.drivers[self.round_plan.drivers[self.name]]
        workload = Workload(self.name, shape, self._guarantee(), driver, [])
        if self.name == plan.CHAINED:
            middle = self._topic("middle")
            workload.output = self._topic("output")
            first = self._query("1", shape, driver, self._inputs(shape), self._sink(middle))
            second = self._query("2", "plain", driver, [], self._sink(workload.output))
            second.topics = [middle]
            workload.queries = [first, second]
            return workload
        has_output = self.name in {plan.AT_LEAST_ONCE, plan.EXACTLY_ONCE}
        workload.output = self._topic("output") if has_output else None
        sink = self._sink(workload.output) if workload.output is not None else None
        query = self._query("", shape, driver, self._inputs(shape), sink)
        workload.queries = [query]
        self._add_store(workload, query)
        return workload

    def _guarantee(self) -> str:
        return "at-least-once" if self.name == plan.AT_LEAST_ONCE else plan.EXACTLY_ONCE

    def _topic(self, role: str) -> str:
        return f"soak-{self.round_plan.number}-{self.name}-{role}"

    def _inputs(self, shape: str) -> list[Feed]:
        if self.name == plan.CHANGING:
            return [self.feeds[plan.CHANGING]]
        if shape == "rate":
            return []
        feeds = [self.feeds["a"], self.feeds["b"]]
        return feeds if shape in {"union", "join"} else feeds[:1]

    def _query(
        self, part: str, shape: str, driver: Driver, feeds: list[Feed], sink: dict[str, str] | None
    ) -> SoakQuery:
        name = f"{self.name}{part}"
        source = {
            "kafka.bootstrap.servers": self.rig.cluster.bootstrap,
            "kafka.isolation.level": "read_committed",
            "maxOffsetsPerTrigger": str(MAX_OFFSETS),
        }
        if self.name == plan.CHANGING:
            source["failOnDataLoss"] = "false"
        topics = [feed.topic for feed in feeds]
        return SoakQuery(
            *(f"{self.round_plan.number}-{name}", shape, driver, self.folder / name),
            *(topics, feeds, source, sink),
        )

    def _sink(self, topic: str) -> dict[str, str]:
        options = {"kafka.bootstrap.servers": self.rig.cluster.bootstrap, "topic": topic}
        if self.name == plan.AT_LEAST_ONCE:
            return options
        exactly_once = {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": topic}
        return {**options, **exactly_once}

    def _add_store(self, workload: Workload, query: SoakQuery) -> None:
        name = f"soak-{self.round_plan.number}-{self.name}"
        direct, feed = self.rig.cluster.direct, self.feeds["a"]
        if self.name == plan.GROUP:
            query.source |= {"progressStore": "consumerGroup", "kafka.group.id": name}
            workload.store = GroupStore(direct, name, feed.topic, feed.partitions)
        elif self.name == plan.ZOOKEEPER:
            hosts = self.rig.zookeeper.hosts
            query.source |= {
                "progressStore": "zookeeper",
                "zookeeperHosts": hosts,
                "zookeeperId": name,
            }
            workload.store = ZooKeeperStore(hosts, name, feed.topic)
        if workload.store is not None:
            workload.watch = ProgressWatch()
