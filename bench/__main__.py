"""
Runs the selected benchmarks; results go to standard output, progress to standard error.
"""

from __future__ import annotations

import math
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bench.arguments import Plan, parse
from bench.audit import AUDITED, measure_audit
from bench.ceiling import Ceiling
from bench.chart import draw
from bench.commits import measure_commits
from bench.fetch_only import FetchOnly
from bench.fresh import measure_first_batch
from bench.latency import measure_latency
from bench.memory import measure_memory
from bench.planning import measure_planning
from bench.report import ratio_lines, table
from bench.results import Results
from bench.server import running_broker
from bench.session import running_spark, spark_protobuf_jars
from bench.throughput import Bench, measure_topics
from bench.typed import measure_typed
from bench.typed_ceiling import TypedCeiling
from bench.versions import machine, versions
from bench.writes import WriteBench, measure_writes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from bench.measurement import Measurement
    from pyspark_pykafka.testing import KafkaCluster


#: The quick run starts no further round after this many seconds, to end within three minutes.
QUICK_SECONDS = 130


def main() -> None:
    """
    Measure, print the results and save them in bench/results.
    """
    start = time.perf_counter()
    software, today = versions(), datetime.now(UTC).date().isoformat()
    plan = parse(sys.argv[1:], f"{today}-{software['commit'].split()[0]}")
    about = {"date": today, "versions": software, "machine": machine(), "settings": _settings(plan)}
    results = Results(plan.name, about)
    _log("Starting a Kafka broker and Spark")
    deadline = time.monotonic() + (QUICK_SECONDS if plan.quick else math.inf)
    with running_broker() as kafka:
        _run(plan, kafka, results, deadline)
    _report(plan, results)
    _log(f"The whole run took {(time.perf_counter() - start) / 60:.1f} minutes")


def _run(plan: Plan, kafka: KafkaCluster, results: Results, deadline: float) -> None:
    if "first" in plan.parts:
        _record(results, measure_first_batch(kafka, plan.rounds, plan.cores, plan.conf))
    reads_protobuf = "typed" in plan.parts and "protobuf" in plan.formats
    jars = spark_protobuf_jars() if reads_protobuf else []
    with running_spark(plan.cores, plan.conf, jars) as spark:
        spark.dataSource.register(Ceiling)
        spark.dataSource.register(FetchOnly)
        spark.dataSource.register(TypedCeiling)
        bench = Bench(
            spark, kafka.bootstrap, plan.contenders, plan.rounds, not plan.quick, deadline
        )
        for measurement in _measurements(plan, bench, kafka, spark):
            _record(results, measurement)
        if "memory" in plan.parts:
            results.memory_total = plan.memory_bytes
            results.memory = measure_memory(bench, kafka, plan.memory_bytes)
            results.save()


def _measurements(
    plan: Plan, bench: Bench, kafka: KafkaCluster, spark: SparkSession
) -> Iterator[Measurement]:
    if "throughput" in plan.parts:
        yield from measure_topics(bench, kafka, plan.topics, plan.modes)
    if "writes" in plan.parts:
        writes = WriteBench(spark, kafka, plan.writers, plan.rounds, not plan.quick, bench.deadline)
        yield from measure_writes(writes, plan.written)
    if "latency" in plan.parts:
        yield from measure_latency(spark, kafka, plan.turns, plan.seconds)
    if "planning" in plan.parts:
        yield from measure_planning(spark, kafka, plan.planning, plan.rounds)
    if "typed" in plan.parts:
        yield from measure_typed(spark, kafka, plan.formats, plan.rounds, plan.records)
    if "audit" in plan.parts:
        for size, sink in AUDITED:
            yield measure_audit(spark, kafka, size, sink, plan.rounds)
    if "commits" in plan.parts:
        yield measure_commits(spark, kafka, plan.rounds)


def _record(results: Results, measurement: Measurement) -> None:
    results.add(measurement)
    for name, ratio in measurement.ratios():
        _log(f"  {name} {ratio}")


def _settings(plan: Plan) -> dict[str, Any]:
    return {
        "cores": plan.cores,
        "rounds": plan.rounds,
        "parts": list(plan.parts),
        "conf": dict(plan.conf),
    }


def _report(plan: Plan, results: Results) -> None:
    if plan.quick:
        print("\n".join(ratio_lines(results.measurements)))
    else:
        print(table(results))
    charts = draw(results) if results.measurements else []
    for path in [results.path, *charts]:
        _log(f"Written: {path}")


def _log(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
