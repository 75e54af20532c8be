"""
One round: all workloads start, faults strike, everything is healed, a quiet period follows, and the
workloads are drained.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from tests.soak import plan
from tests.soak.feeds import ChangingFeed, Feed
from tests.soak.nemeses import Nemesis, Scene
from tests.soak.workloads import Inputs, Workload, make_workloads

from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.settings.librdkafka_config import admin_config
from pyspark_pykafka.verify.checker import Verdict
from pyspark_pykafka.verify.topics import EndOffsets

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.soak.rig import Rig
    from tests.soak.verdicts import WorkloadResult

START_SECONDS = 180.0
DRAIN_SECONDS = 240.0
SAMPLE_SECONDS = 2.0
_POLL_SECONDS = 0.5
_DELETE_SECONDS = 60.0
_STORE_ERRORS = (
    *(KafkaException, KazooException, KazooTimeoutError),
    *(ConnectionError, TimeoutError),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """
    A point of the timeline: the records acknowledged and processed so far, and the lag.
    """

    at: float
    acknowledged: int
    processed: int
    lag: int


@dataclass
class RoundResult:
    """
    The result of one round.
    """

    number: int
    start: float
    end: float
    written: int
    faults: list[dict[str, Any]]
    samples: list[Sample]
    workloads: list[WorkloadResult]
    #: Anomalies that the brokers themselves caused, by kind; ``brokers`` in the document.
    broker_anomalies: dict[str, list[str]]
    #: Failures of the soak itself, which make its verdicts void.
    trouble: list[str]
    batches: int = 0
    #: The load average of the machine, other work included.
    load: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """
        Return the result as a document.
        """
        document = asdict(self)
        document["brokers"] = document.pop("broker_anomalies")
        for workload, result in zip(document["workloads"], self.workloads, strict=True):
            workload["outcome"] = result.outcome
        return document


@dataclass
class Round:
    """
    One round on a rig.
    """

    rig: Rig
    plan: plan.RoundPlan
    folder: Path
    rate: float
    seconds: float
    say: Callable[[str], None]
    feeds: dict[str, Feed] = field(default_factory=dict)
    workloads: list[Workload] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    batches: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _finishing: set[str] = field(default_factory=set)
    _taken: dict[str, int] = field(default_factory=dict)
    _polling: threading.Lock = field(default_factory=threading.Lock)
    _end_offsets: dict[int, EndOffsets] = field(default_factory=dict)

    def run(self) -> RoundResult:
        """
        Run the round and return its result.
        """
        try:
            return self._run()
        except KeyboardInterrupt:
            # The threads of producers and of stores' clients would keep the process alive.
            self.close()
            raise

    def _run(self) -> RoundResult:
        started_at = time.time()
        self._create()
        sampler = threading.Thread(target=self._sample, daemon=True)
        sampler.start()
        try:
            self._start()
            nemesis = self._strike()
            self._drain()
        finally:
            self._over.set()
            sampler.join()
        result = self._result(started_at, nemesis)
        self._clean_up()
        return result

    def abandon(self) -> None:
        """
        Stop the feeds and queries of an aborted round.
        """
        self.close()
        for driver in self.rig.drivers.values():
            driver.queries.clear()
            driver.kill()
            driver.start()

    def close(self) -> None:
        """
        Stop the producers and close the clients of all progress stores.
        """
        for feed in self.feeds.values():
            if feed.is_running:
                feed.stop()
        for workload in self.workloads:
            if workload.store is not None:
                workload.store.close()

    # --- Phases -----------------------------------------------------------------------------------

    def _create(self) -> None:
        kafka, number = self.rig.cluster.kafka, self.plan.number
        for name in ("a", "b"):
            topic = kafka.create_topic(f"soak-{number}-{name}", 3)
            self.feeds[name] = Feed(kafka, topic, f"{name}{number}_", self.rate)
        changing = ChangingFeed(kafka, f"soak-{number}-changing", f"c{number}_", self.rate / 2)
        changing.is_read = self._changing_is_read
        changing.create()
        self.feeds[plan.CHANGING] = changing
        self.workloads = make_workloads(self.rig, self.plan, self.folder, self.feeds)
        for topic in self._outputs():
            kafka.create_topic(topic, 3)

    def _start(self) -> None:
        for feed in self.feeds.values():
            feed.start()
        for workload in self.workloads:
            for query in workload.queries:
                query.start()
        self._until(self._all_read, START_SECONDS)
        self.say(
            f"round {self.plan.number}: {', '.join(f'{w.name} {w.shape}' for w in self.workloads)}"
        )

    def _strike(self) -> Nemesis:
        deadline = Deadline.after(self.seconds)
        changing = self.feeds[plan.CHANGING]
        assert isinstance(changing, ChangingFeed)
        inputs = [self.feeds["a"].topic, self.feeds["b"].topic]
        scene = Scene(self.rig, inputs, self._outputs(), changing)
        nemesis = Nemesis(scene, self.plan.strikes, self.say)
        last_strike = Deadline.after(self.seconds * (1 - plan.QUIET_SHARE))
        try:
            nemesis.run(last_strike)
        except Exception as error:  # noqa: BLE001 (healed below; reported as the round's trouble)
            self.trouble.append(f"a fault could not be injected or healed: {error!r}"[:500])
        self.rig.heal()
        self.say(f"round {self.plan.number}: quiet")
        self._until(lambda: False, max(deadline.remaining(), self.seconds * plan.QUIET_SHARE))
        return nemesis

    def _drain(self) -> None:
        for feed in self.feeds.values():
            if feed.is_running and (error := feed.stop()):
                self.trouble.append(error)
        started_at = time.monotonic()
        self.say(f"round {self.plan.number}: draining")
        self._until(lambda: self._advance(time.monotonic() - started_at), DRAIN_SECONDS)

    def _advance(self, elapsed: float) -> bool:
        """
        Finish each query once its predecessor has finished and its workload's progress store has
        caught up; return whether all workloads have finished.
        """
        for workload in self.workloads:
            for query, previous in zip(workload.queries, [None, *workload.queries], strict=False):
                is_due = previous is None or previous.is_finished
                if query.name in self._finishing or not is_due or not self._has_caught_up(workload):
                    continue
                self._finishing.add(query.name)
                query.driver.finish(query.name)
            if workload.is_finished and not workload.drained_seconds:
                workload.drained_seconds = elapsed
        return all(workload.is_finished for workload in self.workloads)

    def _has_caught_up(self, workload: Workload) -> bool:
        """
        Return whether the recorded progress, which a background thread writes, has reached Spark's;
        true for a workload without a progress store.
        """
        if workload.watch is None:
            return True
        (query,) = workload.queries
        ends = {topic: self._ends(topic) for topic in query.topics}
        return query.has_read(ends) and [workload.watch.recorded] == query.committed_ends()

    def _result(self, started_at: float, nemesis: Nemesis) -> RoundResult:
        broker_verdict = Verdict()
        records = {feed.label: feed.records() for feed in self.feeds.values()}
        truths = {
            feed.label: feed.truth(records[feed.label], broker_verdict)
            for feed in self.feeds.values()
        }
        inputs = Inputs(records, truths)
        results = [workload.result(self.rig, inputs) for workload in self.workloads]
        for result in results:
            if self.trouble and result.outcome == "clean":
                result.void = self.trouble[0]
        return RoundResult(
            number=self.plan.number,
            start=started_at,
            end=time.time(),
            written=sum(feed.acknowledged for feed in self.feeds.values()),
            faults=[fault.to_json() for fault in nemesis.faults],
            samples=self.samples,
            workloads=results,
            broker_anomalies={
                kind: [str(item) for item in items[:5]]
                for kind, items in broker_verdict.anomalies.items()
            },
            trouble=self.trouble,
            batches=self.batches,
            load=os.getloadavg()[0],
        )

    def _clean_up(self) -> None:
        self.close()
        for query in (query for workload in self.workloads for query in workload.queries):
            query.driver.forget(query.name)
        # A query that hangs would continue through all further rounds.
        for driver in {
            query.driver.name: query.driver
            for w in self.workloads
            for query in w.queries
            if not query.is_finished
        }.values():
            driver.kill()
            driver.start()
        topics = [*(feed.topic for feed in self.feeds.values()), *self._outputs()]
        # The client must outlive the futures that it returns.
        admin = self.rig.cluster.kafka.admin()
        for future in admin.delete_topics(topics).values():
            future.result(_DELETE_SECONDS)
        if not self.trouble and not any(query.ended for w in self.workloads for query in w.queries):
            shutil.rmtree(self.folder, ignore_errors=True)

    # --- Watching ---------------------------------------------------------------------------------

    def _sample(self) -> None:
        try:
            while not self._over.wait(SAMPLE_SECONDS):
                self._poll()
                self._watch_progress()
                self._add_sample()
        except Exception as error:
            # Without samples, a progress store is never seen to have caught up.
            self.trouble.append(f"sampling ended: {error!r}")
            raise

    def _add_sample(self) -> None:
        acknowledged = sum(feed.acknowledged for feed in self.feeds.values())
        queries = [query for workload in self.workloads for query in workload.queries]
        processed = sum(sum(list(query.rows.values())) for query in queries)
        lags = [
            sum(feed.acknowledged for feed in query.feeds) - sum(list(query.rows.values()))
            for query in queries
            if query.feeds
        ]
        self.samples.append(
            Sample(time.time(), acknowledged, processed, sum(max(0, lag) for lag in lags))
        )

    def _watch_progress(self) -> None:
        for workload in self.workloads:
            if workload.watch is None or workload.store is None:
                continue
            try:
                recorded = workload.store.read()
            except _STORE_ERRORS:
                # The store is down, as the nemesis intends.
                continue
            (query,) = workload.queries
            committed = query.committed_ends()
            workload.watch.add(recorded, committed[0] if committed else {})

    def _poll(self) -> None:
        """
        Process the new events of all drivers; called by the round's own thread and by the sampler.
        """
        by_name = {query.name: query for w in self.workloads for query in w.queries}
        with self._polling:
            for driver in self.rig.drivers.values():
                driver.poll()
                events = driver.events
                for event in events[self._taken.get(driver.name, 0) :]:
                    query = by_name.get(event.get("query", ""))
                    if query is not None:
                        self.batches += event["event"] == "progress"
                        query.process(event)
                self._taken[driver.name] = len(events)

    def _until(self, is_done: Callable[[], bool], seconds: float) -> bool:
        deadline = Deadline.after(seconds)
        while True:
            self._poll()
            if is_done():
                return True
            if deadline.expired:
                return False
            time.sleep(_POLL_SECONDS)

    def _all_read(self) -> bool:
        return all(any(query.rows.values()) for w in self.workloads for query in w.queries)

    def _outputs(self) -> list[str]:
        middles = [query.topics[0] for w in self.workloads for query in w.queries[1:]]
        return middles + [w.output for w in self.workloads if w.output is not None]

    def _changing_is_read(self) -> bool:
        query = next(w for w in self.workloads if w.name == plan.CHANGING).queries[0]
        return query.has_read({topic: self._ends(topic) for topic in query.topics})

    def _ends(self, topic: str) -> dict[int, int] | None:
        partitions = next(feed.partitions for feed in self.feeds.values() if feed.topic == topic)
        settings = KafkaSettings.of({"bootstrap.servers": self.rig.cluster.direct})
        end_offsets = self._end_offsets.get(partitions) or EndOffsets(
            admin_config(settings), partitions
        )
        self._end_offsets[partitions] = end_offsets
        ends = end_offsets.of(topic)
        return ends if len(ends) == partitions else None
