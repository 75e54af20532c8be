"""
Measures the peak memory of a worker that reads one large partition.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from bench.cases import JVM, Case, TopicSpec
from bench.load import loaded_topic
from bench.processes import end_workers, worker_peak
from bench.session import jvm_pid

if TYPE_CHECKING:
    from bench.throughput import Bench
    from pyspark_pykafka.testing import KafkaCluster

VALUE_BYTES = 1024


def measure_memory(bench: Bench, kafka: KafkaCluster, total_bytes: int) -> dict[str, int | None]:
    """
    Return the peak of each engine in bytes, from one read in a new worker.
    """
    records = total_bytes // VALUE_BYTES
    case = Case("batch", TopicSpec(VALUE_BYTES, "none", 1, records))
    peaks: dict[str, int | None] = {}
    pid = jvm_pid(bench.spark)
    with loaded_topic(bench.spark, kafka, case.topic):
        for contender in bench.contenders:
            if contender is JVM or contender.has_other_records:
                continue
            end_workers(pid)
            bench.read_whole(contender, case)
            peaks[contender.name] = worker_peak(pid)
            peak = f"{(peaks[contender.name] or 0) / 1e6:.0f} MB"
            print(f"  {contender.name} held {peak} of {total_bytes / 1e9:.1f} GB", file=sys.stderr)
    return peaks
