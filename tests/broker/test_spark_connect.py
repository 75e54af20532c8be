"""
The connector through Spark Connect, whose clients have neither a JVM nor the driver's process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from pyspark_pykafka.testing import Record, find_java

if TYPE_CHECKING:
    from pyspark_pykafka.testing import KafkaCluster
    from pyspark_pykafka.testing.plugin import TopicFactory

JOB = Path(__file__).parent / "spark_connect_job.py"
SECONDS = 280
RECORDS = 40
POISON = b"poison"

#: Where Spark describes the streaming query whose error it reports.
DESCRIPTION = "=== Streaming Query ==="
SPARK_LINES = 2
MISSPELT = "[INVALID_OPTIONS] 'startingoffset' is not an option; did you mean 'startingOffsets'?"
MISSING = "-missing' was not found within 5000 ms; create it, or correct the option"
#: The line of ours in the error of each mistake.
ERRORS = {
    "misspelt_in_a_batch": MISSPELT,
    "misspelt_in_a_stream": MISSPELT,
    "write_to_a_missing_topic": MISSING,
    "stream_to_a_missing_topic": MISSING,
    "record_that_is_not_json": "[KAFKA_UNDECODABLE_RECORD] cannot decode the record of ",
}


@pytest.fixture
def names(topic: TopicFactory, tmp_path: Path) -> dict[str, str]:
    """
    Return the names of the topics, the group and the folder of the job.
    """
    topics = {name: topic(partitions=2) for name in ("source", "written", "once", "dead")}
    return {**topics, "group": f"{topics['source']}-group", "folder": str(tmp_path)}


def results_of_job(cluster: KafkaCluster, names: dict[str, str]) -> dict[str, Any]:
    """
    Run the job, and return the result of each step.
    """
    result = subprocess.run(
        [sys.executable, str(JOB), cluster.bootstrap, json.dumps(names)],
        env={
            **os.environ,
            "JAVA_HOME": str(find_java().parent.parent),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(Path(__file__).parents[2]),
        },
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-5000:]
    results: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return results


def values(cluster: KafkaCluster, topic: str) -> list[bytes]:
    committed = {"isolation.level": "read_committed"}
    return sorted(record.value or b"" for record in cluster.consume(topic, committed))


def committed_offsets(cluster: KafkaCluster, names: dict[str, str]) -> int:
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": names["group"]}
    consumer = Consumer(settings)
    try:
        tps = [TopicPartition(names["source"], number) for number in range(2)]
        return sum(tp.offset for tp in consumer.committed(tps, timeout=20))
    finally:
        consumer.close()


def test_a_server_runs_what_a_client_asks_for(
    names: dict[str, str], kafka_cluster: KafkaCluster
) -> None:
    """
    Reads, views, writes from two threads, exactly-once, poison records, listeners and supervise
    work through one server; the errors of batches, streams, writes and tasks have one line of ours.

    One test, since a server of Spark's own always listens on the same port.
    """
    records = [str(number).encode() for number in range(RECORDS - 1)] + [POISON]
    kafka_cluster.produce(names["source"], [Record(value=value) for value in records])

    results = results_of_job(kafka_cluster, names)

    assert (results["batch_read"], results["sql"]) == (RECORDS, RECORDS)
    assert results["page"].startswith("struct<key:binary,value:binary,topic:string")
    assert values(kafka_cluster, names["written"]) == [
        b"from another thread",
        b"from the main thread",
    ]
    assert results["exactly_once"] == "ended"
    assert values(kafka_cluster, names["once"]) == sorted(records)
    assert results["poison"] == f"ended {RECORDS - 1}"
    assert values(kafka_cluster, names["dead"]) == [POISON]
    assert results["listeners"]["ended"] == "ended"
    assert results["listeners"]["complete"] == [True]
    assert results["listeners"]["read"] == RECORDS
    assert committed_offsets(kafka_cluster, names) == RECORDS
    assert results["supervised"] == 1
    assert results["errors"].keys() == ERRORS.keys()
    for mistake, error in results["errors"].items():
        report, _, _ = error.strip().partition(DESCRIPTION)
        lines = [line for line in report.splitlines() if ERRORS[mistake] in line]
        assert (mistake, len(lines)) == (mistake, 1), error
        # Besides Spark's own line before the error of a task, and the SQLSTATE.
        assert len(report.splitlines()) <= 1 + SPARK_LINES, error
