"""
A job in its own process: a stream that copies a topic to its end, in small micro-batches.

Arguments: bootstrap servers, checkpoint, the options of the sink, the faults, and Spark's settings;
the last three as JSON. A fault has a ``point``, the ``batch`` in which it happens, the ``task`` it
hits or the ``count`` of committed tasks, and ``flag``, a file that exists once the fault has
happened; each fault happens once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from pyspark import TaskContext
from pyspark.sql import SparkSession
from tests.support.short_jvm import SHORT_DRIVER

from pyspark_pykafka.options import parse_sink
from pyspark_pykafka.spark.datasource import DefaultSource
from pyspark_pykafka.spark.writers import KafkaStreamWriter, KafkaWriterCommitMessage
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType

    from pyspark_pykafka.engines.transaction_contract import PreparedTransaction
    from pyspark_pykafka.engines.wire.transactions.transactions import Transactions

#: Points at which the driver dies; at the last one, ``count`` transactions are committed.
DRIVER_POINTS = ("before a task prepares", "all prepared", "all committed", "some committed")
#: Points at which a task loses its process, or is so slow that Spark starts a second attempt.
TASK_POINTS = ("worker", "executor", "paused", "slow")
#: How many Arrow batches, or rows, the writer has when a task pauses; the first ones are sent
#: already.
PAUSE_AFTER = 5
#: How long a slow task waits for its second attempt at most.
SLOW_SECONDS = 60.0


class FaultySource(DefaultSource):
    """
    The connector, with faults planted into its sink.
    """

    @classmethod
    def name(cls) -> str:
        """
        Return the name for ``.format(...)``.
        """
        return "faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: ARG002, N802 (Spark's name)
        """
        Return the writer with the planted faults.
        """
        options = dict(self.options)
        planted = json.loads(options.pop("planted"))
        return FaultyWriter(planted, parse_sink(options, streaming=True), schema)


class FaultyWriter(KafkaStreamWriter):
    """
    A writer in which each planted fault happens at its point.
    """

    def __init__(self, planted: dict[str, Any], *options: Any) -> None:
        super().__init__(*options)
        self._group = planted["group"]
        self._faults = planted["faults"]

    def write(self, iterator: Iterator[Any]) -> KafkaWriterCommitMessage:
        """
        Write the rows, with the fault if it hits this task.
        """
        task = TaskContext.get()
        assert task is not None
        batch = int(task.getLocalProperty("streaming.sql.batchId") or -1)
        if task.attemptNumber():
            for fault in self._faults:
                if fault["batch"] == batch:
                    Path(f"{fault['flag']}-again").touch()
        elif (fault := self._due(batch)) and fault["task"] == task.partitionId():
            if fault["point"] == "before a task prepares":
                self._kill_driver(fault)
            if fault["point"] in TASK_POINTS:
                iterator = with_fault(iterator, fault)
        return super().write(iterator)

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 (Spark's name)
        """
        Commit, unless the fault kills the driver first.
        """
        fault = self._due(batchId) or {"point": None}
        if fault["point"] == "all prepared":
            self._kill_driver(fault)
        if fault["point"] == "some committed":
            self._kill_after(fault)
        super().commit(messages, batchId)
        if fault["point"] == "all committed":
            self._kill_driver(fault)

    def _due(self, batch: int) -> dict[str, Any] | None:
        due = (
            fault
            for fault in self._faults
            if fault["batch"] == batch and not Path(fault["flag"]).exists()
        )
        return next(due, None)

    def _kill_driver(self, fault: dict[str, Any]) -> None:
        Path(fault["flag"]).touch()
        os.killpg(self._group, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def _kill_after(self, fault: dict[str, Any]) -> None:
        from pyspark_pykafka.engines.wire.transactions.transactions import Transactions

        def end_some(
            self: Transactions, prepared: Sequence[PreparedTransaction], *, commit: bool
        ) -> None:
            for transaction in prepared[: fault["count"]]:
                self.end(transaction, commit=commit)
            die(fault)

        die = self._kill_driver
        Transactions.end_all = end_some  # type: ignore[method-assign]


def with_fault(rows: Iterator[Any], fault: dict[str, Any]) -> Iterator[Any]:
    """
    Yield the rows of a task, with the fault after some of them are written.
    """
    moment = PAUSE_AFTER if fault["point"] == "paused" else 0
    for index, batch in enumerate(rows):
        yield batch
        if index == moment:
            Path(fault["flag"]).touch()
            hit(fault)


def hit(fault: dict[str, Any]) -> None:
    """
    Trigger a task's fault.
    """
    if fault["point"] == "slow":
        second_attempt_flag = Path(f"{fault['flag']}-again")
        wait_until(
            lambda: None if second_attempt_flag.exists() else "no second attempt", SLOW_SECONDS
        )
    elif fault["point"] == "paused":
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        if fault["point"] == "executor":
            # The worker's parent is Spark's daemon, whose parent is the executor.
            psutil.Process(os.getppid()).parent().kill()
        os.kill(os.getpid(), signal.SIGKILL)


bootstrap, checkpoint = sys.argv[1:3]
sink, faults, conf = (json.loads(text) for text in sys.argv[3:])
servers = {"kafka.bootstrap.servers": bootstrap}

builder = SparkSession.builder.config("spark.ui.enabled", "false")
for name, value in {"spark.master": "local[3,4]", **SHORT_DRIVER, **conf}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.dataSource.register(FaultySource)
source = (
    spark.readStream.format("pykafka")
    .options(**servers, subscribe=sink.pop("source"), startingOffsets="earliest")
    .option("maxOffsetsPerTrigger", sink.pop("rows"))
    # Otherwise the driver would read such small batches itself, and one task would write them.
    .option("minPartitions", 1)
    .load()
)
planted = json.dumps({"faults": faults, "group": os.getpgid(0)})
query = (
    source.select("key", "value")
    .writeStream.format("faulty")
    .options(**servers, **sink, planted=planted, checkpointLocation=checkpoint)
    .start()
)
query.processAllAvailable()
query.stop()
