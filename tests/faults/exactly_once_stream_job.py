"""
A job of its own process: a topic is copied by a stream, in small micro-batches, until all is there.

Arguments: bootstrap servers, checkpoint, the options of the sink, the fault, and Spark's settings;
the last three as JSON. A fault has a ``point``, the ``batch`` that it happens in, a ``count`` for
some of them, and ``said``, a file that says that it has happened; it happens once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from pyspark import TaskContext
from pyspark.sql import SparkSession

from pyspark_pykafka.datasource import DefaultSource
from pyspark_pykafka.options import parse_sink
from pyspark_pykafka.sink import KafkaStreamWriter, TaskWritten

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

    from pyspark_pykafka.wire.transactions import Prepared, Transactions

#: Points at which the driver dies; the last one leaves as many transactions committed as ``count``.
DRIVER_POINTS = ("before a task prepares", "all prepared", "all committed", "some committed")
#: Points at which a task loses the process that it runs in, or takes so long that it is doubled.
TASK_POINTS = ("worker", "executor", "slow")
SLOW_SECONDS = 20.0


class FaultySource(DefaultSource):
    """
    The connector, with one fault planted into its sink.
    """

    @classmethod
    def name(cls) -> str:
        """
        Return the name for ``.format(...)``.
        """
        return "faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: ARG002, N802 (Spark's name)
        """
        Return the writer that the fault happens to.
        """
        options = dict(self.options)
        fault = json.loads(options.pop("fault", "{}"))
        return FaultyWriter(fault, parse_sink(options, streaming=True), schema)


class FaultyWriter(KafkaStreamWriter):
    """
    Lets the fault happen at its point.
    """

    def __init__(self, fault: dict[str, Any], *options: Any) -> None:
        super().__init__(*options)
        self._fault = fault

    def write(self, iterator: Iterator[Any]) -> TaskWritten:
        """
        Write, unless this is the task that something happens to.
        """
        task = TaskContext.get()
        assert task is not None
        batch = int(task.getLocalProperty("streaming.sql.batchId") or -1)
        if task.attemptNumber() and batch == self._fault.get("batch"):
            Path(f"{self._fault['said']}-again").touch()
        if task.partitionId() == 0 and task.attemptNumber() == 0 and self._due(batch):
            if self._fault["point"] == "before a task prepares":
                self._kill_driver()
            if self._fault["point"] in TASK_POINTS:
                iterator = self._with_fault(iterator)
        return super().write(iterator)

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 (Spark's name)
        """
        Commit, unless the driver is to die meanwhile.
        """
        due = self._due(batchId)
        if due and self._fault["point"] == "all prepared":
            self._kill_driver()
        if due and self._fault["point"] == "some committed":
            self._kill_after(self._fault["count"])
        super().commit(messages, batchId)
        if due and self._fault["point"] == "all committed":
            self._kill_driver()

    def _due(self, batch: int) -> bool:
        return self._fault.get("batch") == batch and not Path(self._fault["said"]).exists()

    def _with_fault(self, iterator: Iterator[Any]) -> Iterator[Any]:
        for at, rows in enumerate(iterator):
            yield rows
            if at == 0:
                Path(self._fault["said"]).touch()
                self._hit()

    def _hit(self) -> None:
        if self._fault["point"] == "slow":
            threading.Event().wait(SLOW_SECONDS)
            return
        if self._fault["point"] == "executor":
            # The worker's parent is Spark's daemon, whose parent is the executor.
            psutil.Process(os.getppid()).parent().kill()
        os.kill(os.getpid(), signal.SIGKILL)

    def _kill_driver(self) -> None:
        Path(self._fault["said"]).touch()
        os.killpg(self._fault["group"], signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def _kill_after(self, count: int) -> None:
        from pyspark_pykafka.wire.transactions import Transactions

        def end_some(self: Transactions, prepared: list[Prepared], *, commit: bool) -> None:
            for one in prepared[:count]:
                self.end(one, commit=commit)
            die()

        die = self._kill_driver
        Transactions.end_all = end_some  # type: ignore[method-assign]


bootstrap, checkpoint = sys.argv[1:3]
sink, fault, conf = (json.loads(text) for text in sys.argv[3:])
servers = {"kafka.bootstrap.servers": bootstrap}

builder = SparkSession.builder.config("spark.ui.enabled", "false")
for name, value in {"spark.master": "local[3,4]", **conf}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.dataSource.register(FaultySource)
source = (
    spark.readStream.format("pykafka")
    .options(**servers, subscribe=sink.pop("source"), startingOffsets="earliest")
    .option("maxOffsetsPerTrigger", sink.pop("rows"))
    # Else one task would read batches as small as these.
    .option("minPartitions", 1)
    .load()
)
planted = json.dumps({**fault, "group": os.getpgid(0)})
query = (
    source.select("key", "value")
    .writeStream.format("faulty")
    .options(**servers, **sink, fault=planted, checkpointLocation=checkpoint)
    .start()
)
query.processAllAvailable()
query.stop()
