"""
Batch reads, one after another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import Mock, patch

from tests.simulation.spark.endpoints import rows_of
from tests.simulation.workloads.history import FAULT_SECONDS
from tests.simulation.workloads.options import read_options
from tests.simulation.workloads.topics import INPUT

from pyspark_pykafka.verify.checker import check_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.kernel.world import Task
    from tests.simulation.spark.endpoints import Row
    from tests.simulation.workloads.history import History

    from pyspark_pykafka.verify.checker import Verdict


class BatchReads:
    """
    One batch read after another, in new processes.
    """

    def __init__(self, history: History, partitions: int, isolation: str) -> None:
        self._history = history
        self._partitions = partitions
        self._isolation = isolation
        self._results: list[tuple[dict[int, int], list[Row]]] = []
        self._task: Task | None = None

    @property
    def is_idle(self) -> bool:
        """
        Whether no read is running.
        """
        return self._task is None or self._task.is_done

    def start(self) -> None:
        """
        Begin a read, and further ones after it, until the faults end.
        """
        history = self._history
        if self.is_idle and history.world.elapsed < FAULT_SECONDS:
            visible = {number: self._visible_end(number) for number in range(self._partitions)}
            options = read_options(history, self._isolation)
            process = history.connector.process("batch")
            self._task = process.spawn("read", lambda: self._read(options, visible))
        if history.world.elapsed < FAULT_SECONDS:
            history.world.call_later(history.draw.expovariate(1.0), self.start)

    def check(self, verdict: Verdict, truth: Mapping[Any, Any]) -> None:
        """
        Compare each read with the logs, up to the offsets that were visible when it started.
        """
        for visible, rows in self._results:
            committed_only = self._isolation == "read_committed"
            check_rows(verdict, truth, [rows], committed_only=committed_only)
            positions = {(row.partition, row.offset) for row in rows}
            verdict.records += len(rows)
            expected_states = {"committed"} if committed_only else {"committed", "aborted", "open"}
            verdict.add(
                "lost",
                [
                    (partition, record.offset)
                    for (_, partition), records in truth.items()
                    for record in records
                    if record.offset < visible.get(partition, 0)
                    and record.state in expected_states
                    and (partition, record.offset) not in positions
                ],
            )

    def _visible_end(self, partition: int) -> int:
        cluster = self._history.cluster
        if self._isolation == "read_committed":
            return cluster.last_stable_offset(INPUT, partition)
        return cluster.high_watermark(INPUT, partition)

    def _read(self, options: dict[str, str], visible: dict[int, int]) -> None:
        """
        Read all records; if one broker alone responds, and a warning says so, some may be missing.
        """
        warned = Mock()
        metadata_reader = self._history.connector.module(
            "engines.wire.network.metadata_reader"
        ).MetadataReader
        source = self._history.connector.source(options)
        with patch.object(metadata_reader, "_warn_of_one_broker", warned):
            reader = source.reader(source.schema())
            rows = [
                row
                for partition in reader.partitions()
                for batch in rows_of(reader.read(partition))
                for row in batch
            ]
        self._results.append(({} if warned.called else visible, rows))
