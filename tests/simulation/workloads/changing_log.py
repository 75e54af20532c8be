"""
A stream from Kafka while the log itself changes: retention, compaction, unclean elections,
partitions that are added, and topics that are deleted and recreated.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation.spark.endpoints import Collector, KafkaSource
from tests.simulation.spark.query import Definition
from tests.simulation.spark.shapes import shapes
from tests.simulation.workloads.fault_kinds import READ_FAULTS
from tests.simulation.workloads.history import FAULT_SECONDS, History, Supervisor
from tests.simulation.workloads.nemesis import Nemesis
from tests.simulation.workloads.options import read_options
from tests.simulation.workloads.topics import (
    INPUT,
    PARTITIONS,
    RECREATION,
    check_progress,
    fill,
    have_ended,
    is_settled,
    stop,
    truth,
)

from pyspark_pykafka.verify.checker import Verdict, check_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.spark.endpoints import Row
    from tests.simulation.workloads.producers import PlainProducer

RETENTION, COMPACTION, UNCLEAN = "retention", "compaction", "unclean"
_KINDS = (RETENTION, COMPACTION, UNCLEAN, PARTITIONS, RECREATION)
_MAX_PARTITIONS = 6
_IDS = "@topicIds"
# Short enough that the last recreation is over when the faults end.
_MAX_RECREATION_SECONDS = 3.0


def draw_available_now(seed: int) -> bool:
    """
    Return whether a topic that is recreated is read in availableNow runs, one after another.

    This is not drawn from the history's own random numbers, so no other history changes.
    """
    return Random(f"availableNow over a changing log {seed}").random() < 0.25


def changing_log(seed: int, *, is_traced: bool = False) -> tuple[Verdict, History]:
    """
    Run a stream over a log that changes in one of five ways.
    """
    with History(seed, is_traced=is_traced) as history:
        change = Change(history, history.draw.choice(_KINDS))
        history.world.trace("the log changes by %s", change.kind)
        history.may_lose = change.kind in {RETENTION, UNCLEAN, RECREATION}
        change.producers = fill(history, change.partitions)
        isolation = history.draw.choice(("read_committed", "read_uncommitted"))
        options = read_options(history, isolation)
        if change.kind == UNCLEAN:
            options["failOnDataLoss"] = "true"
        sink = Collector()
        supervisor = history.supervise(
            Definition(
                lambda: KafkaSource(history.connector, options),
                lambda: sink,
                shape=history.draw.choice(shapes()),
                available_now=change.kind == RECREATION and draw_available_now(seed),
                has_executors=history.draw.random() < 0.5,
            )
        )
        faults = {change.kind: change.happen}
        nemesis = Nemesis(
            history, [supervisor], [(INPUT, change.partitions)], READ_FAULTS, extra_faults=faults
        )
        change.happen_later()
        history.world.call_later(FAULT_SECONDS, lambda: stop(change.producers))
        outcome = _Outcome(change, supervisor, fails=options["failOnDataLoss"] == "true")
        history.run(nemesis, outcome.has_contact)
        if history.verdict.is_clean:
            batches = [sink.batches[number] for number in sorted(supervisor.checkpoint.completed)]
            outcome.check(batches, committed_only=isolation == "read_committed")
        check_progress(history.verdict)
        return history.verdict, history


@dataclass
class Change:
    """
    The changes of the log; ``deleted`` has, by partition, the offset before which records were
    deleted.
    """

    history: History
    kind: str
    deleted: dict[tuple[str, int], int] = field(default_factory=dict)
    #: The records of each deleted topic.
    former: list[dict[tuple[str, int], Any]] = field(default_factory=list)
    partitions: int = field(init=False)
    producers: list[PlainProducer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.partitions = self.history.draw.choice((1, 3))

    def happen_later(self) -> None:
        """
        Let the log change one to four times, at random times before the faults end.
        """
        history = self.history
        for _ in range(history.draw.randint(1, 4)):
            history.world.call_later(history.draw.uniform(1.0, FAULT_SECONDS), self.happen)

    def happen(self) -> None:
        """
        Change the log once, if the topic exists and the cluster's state allows it.
        """
        world, cluster = self.history.world, self.history.cluster
        if world.elapsed > FAULT_SECONDS - _MAX_RECREATION_SECONDS or not cluster.has_topic(INPUT):
            return
        partition = self.history.draw.randrange(self.partitions)
        actions = {
            RETENTION: self._delete,
            COMPACTION: self._compact,
            UNCLEAN: self._elect_unclean,
            PARTITIONS: self._add_partition,
            RECREATION: self._recreate,
        }
        actions[self.kind](partition)

    def _delete(self, partition: int) -> None:
        cluster = self.history.cluster
        if cluster.leader(INPUT, partition) < 0:
            return
        start = cluster.log_start(INPUT, partition)
        end = cluster.last_stable_offset(INPUT, partition)
        before = self.history.draw.randint(start, max(start, end))
        self.history.world.trace("%s-%d: deleted before %d", INPUT, partition, before)
        cluster.delete_records(INPUT, partition, before)
        tp = (INPUT, partition)
        self.deleted[tp] = max(before, self.deleted.get(tp, 0))

    def _compact(self, partition: int) -> None:
        if self.history.cluster.leader(INPUT, partition) >= 0:
            self.history.cluster.compact(INPUT, partition)

    def _add_partition(self, _: int) -> None:
        if self.partitions >= _MAX_PARTITIONS:
            return
        self.history.cluster.add_partitions(INPUT, 1)
        for producer in self.producers:
            producer.add_partition((INPUT, self.partitions))
        self.partitions += 1

    def _recreate(self, _: int) -> None:
        """
        Delete the topic, and create it again, at once or after a while.
        """
        history, cluster = self.history, self.history.cluster
        if any(cluster.leader(INPUT, number) < 0 for number in range(self.partitions)):
            return
        self.former.append(self.appended())
        history.world.trace("%s is deleted", INPUT)
        cluster.delete_topic(INPUT)

        def create() -> None:
            history.world.trace("%s is created again", INPUT)
            cluster.create_topic(INPUT, self.partitions)

        seconds = history.draw.choice((0.0, history.draw.uniform(0, _MAX_RECREATION_SECONDS)))
        history.world.call_later(seconds, create)

    def appended(self) -> dict[tuple[str, int], Any]:
        """
        Return all records that were appended to the current topic, including deleted ones.
        """
        tps = [(INPUT, number) for number in range(self.partitions)]
        return {tp: self.history.cluster.appended(*tp) for tp in tps}

    def _elect_unclean(self, partition: int) -> None:
        """
        Let a replica crash, miss some records, and lead before it has fetched them.
        """
        history, cluster = self.history, self.history.cluster
        followers = set(cluster.replicas(INPUT, partition)) - {cluster.leader(INPUT, partition)}
        if history.network.down or not followers:
            return
        node = history.draw.choice(sorted(followers))
        cluster.lag_replica(INPUT, partition, node, 20.0)
        cluster.crash(node)
        history.network.reset(node)
        history.world.call_later(1.0, lambda: cluster.start(node))

        def elect() -> None:
            if cluster.is_alive(node) and history.world.elapsed < FAULT_SECONDS:
                history.world.trace("%s-%d: %d is elected unclean", INPUT, partition, node)
                cluster.elect_unclean(INPUT, partition, node)

        history.world.call_later(history.draw.uniform(3.0, 18.0), elect)


@dataclass
class _Outcome:
    """
    The outcome of the stream: it reaches the end of the log, or fails with the report of a loss.
    """

    change: Change
    supervisor: Supervisor
    fails: bool

    @property
    def has_failed(self) -> bool:
        """
        Whether the last run reported lost records.
        """
        loss = self.change.history.connector.module("errors").DataLossError
        errors = self.supervisor.errors[-1:]
        return any(isinstance(error, loss) or isinstance(error.__cause__, loss) for error in errors)

    def has_contact(self) -> bool:
        """
        Return whether the stream has reached the end of the log, or has failed as it must.
        """
        change, checkpoint = self.change, self.supervisor.checkpoint
        history, partitions = change.history, range(change.partitions)
        if not have_ended(change.producers):
            return False
        if self.fails and history.may_lose and self.has_failed:
            return True
        end = (checkpoint.last_end or {}).get(INPUT, {})
        if change.kind == UNCLEAN:
            # A marker that was lost is not written again, and its transaction stays open.
            return all(end.get(str(number)) in self._final_ends(number) for number in partitions)
        return is_settled(history, INPUT, change.partitions) and all(
            end.get(str(number)) == history.cluster.log_end(INPUT, number) for number in partitions
        )

    def _final_ends(self, number: int) -> tuple[int, int]:
        cluster = self.change.history.cluster
        return cluster.last_stable_offset(INPUT, number), cluster.log_end(INPUT, number)

    def check(self, batches: Sequence[Sequence[Row]], *, committed_only: bool) -> None:
        """
        Compare the completed micro-batches with all records that were ever appended.
        """
        change, verdict = self.change, self.change.history.verdict
        if self.has_failed:
            # The report was expected, even if nothing was read before it.
            verdict.records += 1
        if change.kind in {UNCLEAN, RECREATION} and self.has_failed:
            # The log that was read is gone.
            return
        appended = change.appended()
        if change.kind == RECREATION:
            self._check_recreated(appended, batches, committed_only=committed_only)
            return
        check_rows(verdict, appended, batches, committed_only=committed_only)
        positions = {(row.topic, row.partition, row.offset) for rows in batches for row in rows}
        ends = self._completed_ends()
        expected_states = {"committed"} if committed_only else {"committed", "aborted"}
        expected = [
            (*tp, record.offset)
            for tp, records in self._expected(appended).items()
            for record in records
            if record.state in expected_states and record.offset < ends.get(tp, 0)
        ]
        verdict.records += len(expected)
        missing = [key for key in expected if key not in positions]
        if self.fails:
            # Nothing is skipped silently.
            verdict.add("lost", missing)
        verdict.add("lost", [key for key in missing if key[2] >= change.deleted.get(key[:2], 0)])

    def _check_recreated(
        self,
        appended: dict[tuple[str, int], Any],
        batches: Sequence[Sequence[Row]],
        *,
        committed_only: bool,
    ) -> None:
        """
        Check that each row is from one of the topics, and that no record of the last topic is
        missing.

        Offsets alone do not distinguish the topics. A micro-batch that was planned before the
        deletion may have read the new topic, whose records are then read again.
        """
        change, verdict = self.change, self.change.history.verdict
        rows = {
            (row.topic, row.partition, row.offset, row.value) for batch in batches for row in batch
        }
        known = {
            (*tp, record.offset, record.value)
            for topic in (*change.former, appended)
            for tp, records in topic.items()
            for record in records
        }
        verdict.add("phantom", rows - known)
        states = {"committed"} if committed_only else {"committed", "aborted"}
        expected = {
            (*tp, record.offset, record.value)
            for tp, records in appended.items()
            for record in records
            if record.state in states
        }
        # The last topic may have no records.
        verdict.records += len(expected | rows)
        verdict.add("lost", expected - rows)
        checkpoint = self.supervisor.checkpoint
        ids = [end.get(_IDS) for end in (checkpoint.initial, checkpoint.last_end)]
        if self.fails and ids[0] != ids[1]:
            verdict.add("unreported recreation", ids)

    def _completed_ends(self) -> dict[tuple[str, int], int]:
        checkpoint = self.supervisor.checkpoint
        end = (checkpoint.last_end or {}).get(INPUT, {})
        return {(INPUT, int(number)): offset for number, offset in end.items()}

    def _expected(self, appended: dict[tuple[str, int], Any]) -> dict[tuple[str, int], Any]:
        """
        Return the records that a reader must have; in a compacted log only the last committed
        record of each key.
        """
        if self.change.kind != COMPACTION:
            return appended
        last: dict[tuple[str, int], Any] = {}
        for tp, records in truth(self.change.history, INPUT, self.change.partitions).items():
            latest_by_key = {
                record.key: record for record in records if record.state == "committed"
            }
            last[tp] = list(latest_by_key.values())
        return last
