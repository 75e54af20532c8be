"""
Measures the resources of a driver: files, threads, Python processes and memory.
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

# Threads of Spark's pools, which grow with the load and shrink after a minute.
_POOL_THREADS = (
    *("block-manager-", "shuffle-exchange-", "broadcast-exchange-", "map-output-dispatcher-"),
    *("ResultQueryStageExecution-", "QueryStageCreator-"),
)

_MEGABYTE = 1 << 20

# Spark stops Python workers that were idle for a minute, and checks every ten seconds
# (PythonWorkerFactory).
_RELEASE_SECONDS = 90.0


@dataclass(frozen=True)
class Footprint:
    """
    Resources of the driver's Python process and JVM, and the number of the JVM's Python processes.
    """

    files: int
    threads: int
    megabytes: int
    jvm_files: int
    jvm_threads: int
    jvm_megabytes: int
    processes: int

    def excess_over(self, limits: Footprint) -> str | None:
        """
        Return the values that exceed the limits as text, or None.
        """
        over = [
            f"{field.name}: {value}, limit {limit}"
            for field in fields(self)
            if (value := getattr(self, field.name)) > (limit := getattr(limits, field.name))
        ]
        return "; ".join(over) or None

    def grown_since(self, before: Footprint) -> Footprint:
        """
        Return the growth of each value, 0 where it shrank.
        """
        increased = {
            f.name: max(getattr(self, f.name) - getattr(before, f.name), 0) for f in fields(self)
        }
        return Footprint(**increased)

    def with_room(self, room: Footprint) -> Footprint:
        """
        Return the limits that allow this much growth.
        """
        sums = {f.name: getattr(self, f.name) + getattr(room, f.name) for f in fields(self)}
        return Footprint(**sums)


#: Growth that is normal, however many batches have failed: pools and caches fill up, and the JVM
#: takes memory before it collects garbage.
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
    Return the current footprint, after a garbage collection in Python and the JVM.
    """
    gc.collect()
    virtual: Any = spark.sparkContext._jvm
    virtual.java.lang.System.gc()
    threads = virtual.java.lang.Thread.getAllStackTraces().keySet().toString()
    jvm = psutil.Process(int(virtual.java.lang.ProcessHandle.current().pid()))
    process = psutil.Process(os.getpid())
    return Footprint(
        files=process.num_fds(),
        threads=process.num_threads(),
        megabytes=process.memory_info().rss // _MEGABYTE,
        jvm_files=jvm.num_fds(),
        jvm_threads=threads.count("Thread[") - sum(map(threads.count, _POOL_THREADS)),
        jvm_megabytes=jvm.memory_info().rss // _MEGABYTE,
        processes=len(jvm.children(recursive=True)),
    )


def check_growth(spark: SparkSession, before: Footprint, seconds: float = _RELEASE_SECONDS) -> None:
    """
    Fail if the footprint is larger than before, after waiting for resources to be released.
    """
    limits = before.with_room(ROOM)
    try:
        wait_until(lambda: footprint(spark).excess_over(limits), seconds)
    except NotReadyError as late:
        msg = f"the footprint has grown: {late}"
        raise AssertionError(msg) from late
