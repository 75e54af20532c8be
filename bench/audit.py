"""
Measures what the audit of a stream costs: the same read with and without it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from bench.cases import PYKAFKA, Case, TopicSpec, records_of, shuffled_rounds
from bench.figures import check_records
from bench.load import loaded
from bench.measurement import Measurement, Series
from bench.processes import Cpu
from bench.reads import options_for, read_stream
from bench.session import collect_garbage, jvm_pid
from pyspark_pykafka.auditor import Auditor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pyspark_pykafka.testing import KafkaCluster

PLAIN, AUDITED = "plain", "audited"
SIZE = 100
PARTITIONS = 2


def measure_audit(spark: SparkSession, kafka: KafkaCluster, rounds: int) -> Measurement:
    """
    Read a topic of small records in a stream with availableNow, in turns with and without audit.
    """
    topic = TopicSpec(SIZE, "none", PARTITIONS, records_of(SIZE, quick=False))
    options = options_for(PYKAFKA, Case("stream", topic), kafka.bootstrap)
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    cpu_seconds: defaultdict[str, list[float]] = defaultdict(list)

    def read(name: str) -> float:
        auditor = Auditor("bench", enabled=name == AUDITED)

        def audited(frame: DataFrame) -> DataFrame:
            return auditor.sink(auditor.source(frame))

        found = read_stream(spark, PYKAFKA.format, options, audited)
        check_records(f"{name} in the audit", topic.records, found.records)
        return found.seconds

    with loaded(spark, kafka, topic):
        for name in (PLAIN, AUDITED):
            read(name)
        for order in shuffled_rounds([PLAIN, AUDITED], rounds, seed="audit"):
            for name in order:
                collect_garbage(spark)
                with Cpu(jvm_pid(spark)) as cpu:
                    seconds[name].append(read(name))
                cpu_seconds[name].append(cpu.seconds)
    series = {
        name: Series(tuple(seconds[name]), tuple(cpu_seconds[name])) for name in (PLAIN, AUDITED)
    }
    return Measurement("audit-100B", "audit", series, topic.records, base=PLAIN)
