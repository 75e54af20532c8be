"""
What a driver and its processes hold: files, threads, Python processes and memory.
"""

from __future__ import annotations

import gc
import os
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import psutil

from pyspark_pykafka.testing.waiting import NotReadyError, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark's pools of threads, which grow with the load and empty themselves after a minute.
_OF_POOLS = (
    *("block-manager-", "shuffle-exchange-", "broadcast-exchange-", "map-output-dispatcher-"),
    *("ResultQueryStageExecution-", "QueryStageCreator-"),
)

_MEGABYTE = 1 << 20

# Spark ends Python workers that had nothing to do for a minute, and looks every ten seconds
# (PythonWorkerFactory).
_ENDS_LATER = 90.0


@dataclass(frozen=True)
class Footprint:
    """
    Of the driver's Python, of its JVM, and how many Python processes that JVM has; memory in MB.
    """

    files: int
    threads: int
    megabytes: int
    jvm_files: int
    jvm_threads: int
    jvm_megabytes: int
    processes: int

    def beyond(self, limits: Footprint) -> str | None:
        """
        Return what is more than the limits allow as text, None if nothing is.
        """
        over = [
            f"{field.name}: {mine}, not more than {most}"
            for field in fields(self)
            if (mine := getattr(self, field.name)) > (most := getattr(limits, field.name))
        ]
        return "; ".join(over) or None

    def grown_since(self, before: Footprint) -> Footprint:
        """
        Return how much more this is, 0 of what is less.
        """
        more = {
            f.name: max(getattr(self, f.name) - getattr(before, f.name), 0) for f in fields(self)
        }
        return Footprint(**more)

    def with_room(self, room: Footprint) -> Footprint:
        """
        Return the limits that leave so much room to grow.
        """
        sums = {f.name: getattr(self, f.name) + getattr(room, f.name) for f in fields(self)}
        return Footprint(**sums)


#: What may come and go by itself, however many batches have failed: pools and caches fill up, and
#: the JVM takes memory before it collects garbage.
ROOM = Footprint(
    files=2,
    threads=2,
    megabytes=32,
    jvm_files=6,
    jvm_threads=6,
    jvm_megabytes=256,
    processes=2,
)


def footprint(spark: SparkSession) -> Footprint:
    """
    Measure, after both have collected their garbage.
    """
    gc.collect()
    virtual: Any = spark.sparkContext._jvm
    virtual.java.lang.System.gc()
    threads = virtual.java.lang.Thread.getAllStackTraces().keySet().toString()
    jvm = psutil.Process(int(virtual.java.lang.ProcessHandle.current().pid()))
    mine = psutil.Process(os.getpid())
    return Footprint(
        files=mine.num_fds(),
        threads=mine.num_threads(),
        megabytes=mine.memory_info().rss // _MEGABYTE,
        jvm_files=jvm.num_fds(),
        jvm_threads=threads.count("Thread[") - sum(map(threads.count, _OF_POOLS)),
        jvm_megabytes=jvm.memory_info().rss // _MEGABYTE,
        processes=len(jvm.children(recursive=True)),
    )


def check_growth(spark: SparkSession, before: Footprint, seconds: float = _ENDS_LATER) -> None:
    """
    Fail if more is held than before, once what ends a little later has had the time to.
    """
    limits = before.with_room(ROOM)
    try:
        wait_until(lambda: footprint(spark).beyond(limits), seconds)
    except NotReadyError as late:
        msg = f"more is held than before: {late}"
        raise AssertionError(msg) from late
