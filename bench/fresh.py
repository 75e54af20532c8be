"""
Measures the first batch of new sessions, each in a new process.

``python -m bench.fresh NAME BOOTSTRAP TOPIC CORES CONF`` is that process; it prints its time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from bench.cases import CEILING, JVM, PYKAFKA, Contender, shuffled_rounds
from bench.ceiling import Ceiling
from bench.figures import check_records
from bench.measurement import Measurement, Series
from bench.reads import read_batch
from bench.session import ROOT, running_spark
from pyspark_pykafka import register
from pyspark_pykafka.testing import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_pykafka.testing import KafkaCluster

TOPIC, RECORDS = "bench-fresh", 100
SECONDS = 180
#: The source is registered, so Spark does not search the installed packages for it.
REGISTERED = Contender("registered", PYKAFKA.format)
READERS = {contender.name: contender for contender in (JVM, PYKAFKA, REGISTERED, CEILING)}


def measure_first_batch(
    kafka: KafkaCluster, rounds: int, cores: int, conf: Mapping[str, str]
) -> Measurement:
    """
    Start one session after another, with alternating connectors, and read a small topic in each.
    """
    kafka.create_topic(TOPIC)
    kafka.produce(TOPIC, [Record(b"value %d" % number) for number in range(RECORDS)])
    seconds: dict[str, list[float]] = {name: [] for name in READERS}
    for order in shuffled_rounds(list(READERS), rounds, seed=TOPIC):
        for name in order:
            seconds[name].append(_in_fresh_session(name, kafka.bootstrap, cores, conf))
    series = {name: Series(tuple(took)) for name, took in seconds.items()}
    return Measurement("first-batch", "first", series, facts={"records": RECORDS})


def _in_fresh_session(name: str, bootstrap: str, cores: int, conf: Mapping[str, str]) -> float:
    arguments = [name, bootstrap, TOPIC, str(cores), json.dumps(dict(conf))]
    command = [sys.executable, "-m", "bench.fresh", *arguments]
    process = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=SECONDS, check=True, cwd=ROOT
    )
    result = json.loads(process.stdout.splitlines()[-1])
    check_records(f"{name} in a fresh session", RECORDS, result["records"])
    return float(result["seconds"])


def main(name: str, bootstrap: str, topic: str, cores: str, conf: str) -> None:
    """
    Start a session, read once, and print how long the read took.
    """
    with running_spark(int(cores), json.loads(conf)) as spark:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
        if name == CEILING.name:
            options = {"records": str(RECORDS), "size": "100", "partitions": "1"}
            spark.dataSource.register(Ceiling)
        elif name == REGISTERED.name:
            register(spark)
        first = read_batch(spark, READERS[name].format, options)
    print(json.dumps({"seconds": first.seconds, "records": first.records}))


if __name__ == "__main__":
    main(*sys.argv[1:6])
