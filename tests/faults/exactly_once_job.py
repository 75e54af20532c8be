"""
A job in its own process that writes numbers exactly once to a topic, with one fault.

Arguments: bootstrap servers, topic, the fault's name, a file that is created when it happens, and
the options of the write as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from tests.support.short_jvm import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

COUNT = 40_000
TASKS = 4

bootstrap, topic, fault, flag, options = sys.argv[1:]


def is_hit(task: TaskContext) -> bool:
    """
    Return whether the fault hits this task attempt.
    """
    return task.partitionId() == 1 and task.attemptNumber() == 0


def kill_workers() -> None:
    """
    Kill all other Python workers, including those that write, and then this one.
    """
    for worker in psutil.Process(os.getppid()).children():
        if worker.pid != os.getpid():
            worker.kill()
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    """
    Raise an error, as a user's function may.
    """
    msg = "planted"
    raise RuntimeError(msg)


def wait_to_be_killed() -> None:
    """
    Block the job for as long as the driver lives.
    """
    threading.Event().wait(600)


FAULTS: dict[str, Callable[[], None]] = {
    "none": lambda: None,
    "workers killed": kill_workers,
    "task failed": fail,
    "driver killed": wait_to_be_killed,
}


def with_fault(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """
    Yield the batches, with the fault after most rows of the task are written.
    """
    task = TaskContext.get()
    assert task is not None
    for index, batch in enumerate(batches):
        if index == 8 and is_hit(task):
            Path(flag).touch()
            FAULTS[fault]()
        yield batch


spark = (
    SparkSession.builder.master("local[2,4]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.extraJavaOptions", OPTIONS)
    .config("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    .getOrCreate()
)
# Long rows and small batches, so that the rows before the fault have been sent.
value = sf.rpad(sf.col("id").cast("string"), 300, " ").alias("value")
numbers = spark.range(0, COUNT, 1, TASKS).select(value)
writer = numbers.mapInArrow(with_fault, "value string").write.format("pykafka").mode("append")
writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
writer = writer.option("kafka.batch.size", "2000").options(**json.loads(options))
writer.save()
