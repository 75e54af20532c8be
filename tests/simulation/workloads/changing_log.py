"""
A stream from Kafka while the log itself changes: retention, compaction, unclean elections, and
partitions that are added.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulation.spark.endpoints import Collector, KafkaSource
from tests.simulation.spark.query import Definition
from tests.simulation.spark.shapes import shapes
from tests.simulation.workloads.history import FAULT_SECONDS, History, Supervisor
from tests.simulation.workloads.kinds_of_faults import READ_FAULTS
from tests.simulation.workloads.nemesis import Nemesis
from tests.simulation.workloads.options import read_options
from tests.simulation.workloads.topics import INPUT, check_progress, fill, is_filled, stop, truth

from pyspark_pykafka.verify.checker import Verdict, check_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.spark.endpoints import Row
    from tests.simulation.workloads.producers import PlainProducer

RETENTION, COMPACTION, UNCLEAN, PARTITIONS = "retention", "compaction", "unclean", "partitions"
_MAX_PARTITIONS = 6


def changing_log(seed: int, *, is_traced: bool = False) -> tuple[Verdict, History]:
    """
    A stream over a log that changes in one of four ways.
    """
    with History(seed, is_traced=is_traced) as history:
        change = Change(history, history.draw.choice((RETENTION, COMPACTION, UNCLEAN, PARTITIONS)))
        history.world.trace("the log changes by %s", change.kind)
        history.may_lose = change.kind in {RETENTION, UNCLEAN}
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
                has_executors=history.draw.random() < 0.5,
            )
        )
        own = {change.kind: change.happen}
        nemesis = Nemesis(history, [supervisor], [(INPUT, change.partitions)], READ_FAULTS, own=own)
        for _ in range(history.draw.randint(1, 4)):
            history.world.call_later(history.draw.uniform(1.0, FAULT_SECONDS), change.happen)
        history.world.call_later(FAULT_SECONDS, lambda: stop(change.producers))
        outcome = _Outcome(change, supervisor, fails=options["failOnDataLoss"] == "true")
        history.run(nemesis, outcome.is_reached)
        if history.verdict.is_clean:
            batches = [sink.batches[number] for number in sorted(supervisor.checkpoint.completed)]
            outcome.check(batches, committed_only=isolation == "read_committed")
        check_progress(history.verdict)
        return history.verdict, history


@dataclass
class Change:
    """
    What happens to the log now and then; ``deleted`` are the offsets before which records were
    removed.
    """

    history: History
    kind: str
    deleted: dict[tuple[str, int], int] = field(default_factory=dict)
    partitions: int = field(init=False)
    producers: list[PlainProducer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.partitions = self.history.draw.choice((1, 3))

    def happen(self) -> None:
        """
        Change the log once, if a leader is there to do it.
        """
        if self.history.world.elapsed > FAULT_SECONDS:
            return
        partition = self.history.draw.randrange(self.partitions)
        actions = {
            RETENTION: self._delete,
            COMPACTION: self._compact,
            UNCLEAN: self._elect_unclean,
            PARTITIONS: self._add_partition,
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
    How the stream has ended: at the end of the log, or with the report of a loss.
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
        return any(isinstance(e, loss) or isinstance(e.__cause__, loss) for e in errors)

    def is_reached(self) -> bool:
        """
        Return whether nothing more can happen.
        """
        change, checkpoint = self.change, self.supervisor.checkpoint
        if not is_filled(change.history, change.producers, change.partitions):
            return False
        if self.fails and change.history.may_lose and self.has_failed:
            return True
        end = (checkpoint.last_end or {}).get(INPUT, {})
        cluster = change.history.cluster
        return all(
            end.get(str(number)) == cluster.log_end(INPUT, number)
            for number in range(change.partitions)
        )

    def check(self, batches: Sequence[Sequence[Row]], *, committed_only: bool) -> None:
        """
        Compare the completed micro-batches with all that was ever appended.
        """
        change, verdict = self.change, self.change.history.verdict
        if self.has_failed:
            # The report is what was expected, even if nothing was read before it.
            verdict.records += 1
        if change.kind == UNCLEAN and self.has_failed:
            # The log that was read is gone.
            return
        cluster = change.history.cluster
        tps = [(INPUT, number) for number in range(change.partitions)]
        appended = {tp: cluster.appended(*tp) for tp in tps}
        check_rows(verdict, appended, batches, committed_only=committed_only)
        seen = {(row.topic, row.partition, row.offset) for rows in batches for row in rows}
        ends = self._completed_ends()
        expected_states = {"committed"} if committed_only else {"committed", "aborted"}
        expected = [
            (*tp, record.offset)
            for tp, records in self._expected(appended).items()
            for record in records
            if record.state in expected_states and record.offset < ends.get(tp, 0)
        ]
        verdict.records += len(expected)
        missing = [key for key in expected if key not in seen]
        if self.fails:
            # Nothing is skipped in silence.
            verdict.add("lost", missing)
        verdict.add("lost", [key for key in missing if key[2] >= change.deleted.get(key[:2], 0)])

    def _completed_ends(self) -> dict[tuple[str, int], int]:
        checkpoint = self.supervisor.checkpoint
        end = (checkpoint.last_end or {}).get(INPUT, {})
        return {(INPUT, int(number)): offset for number, offset in end.items()}

    def _expected(self, appended: dict[tuple[str, int], Any]) -> dict[tuple[str, int], Any]:
        """
        Return the records that a reader must have; of a compacted log the last one of each key.
        """
        if self.change.kind != COMPACTION:
            return appended
        last: dict[tuple[str, int], Any] = {}
        for tp, records in truth(self.change.history, INPUT, self.change.partitions).items():
            kept = {record.key: record for record in records if record.state == "committed"}
            last[tp] = list(kept.values())
        return last
