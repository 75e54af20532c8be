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

JOB = Path(__file__).parent / "spark_connect_job.py"
SECONDS = 280
RECORDS = 40
POISON = b"poison"


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """
    Return the names of the topics, the group and the folder of the job.
    """
    topics = ("source", "written", "once", "dead", "group")
    folder = str(tmp_path_factory.mktemp("connect"))
    return {**{name: f"connect-{name}" for name in topics}, "folder": folder}


@pytest.fixture(scope="module")
def results(kafka_cluster: KafkaCluster, names: dict[str, str]) -> dict[str, Any]:
    """
    Return the results of the job, by step.
    """
    for name in ("source", "written", "once", "dead"):
        kafka_cluster.create_topic(names[name], partitions=2)
    values = [str(number).encode() for number in range(RECORDS - 1)] + [POISON]
    kafka_cluster.produce(names["source"], [Record(value=value) for value in values])
    done = subprocess.run(
        [sys.executable, str(JOB), kafka_cluster.bootstrap, json.dumps(names)],
        env={
            **os.environ,
            "JAVA_HOME": str(find_java().parent.parent),
            "PYSPARK_PYTHON": sys.executable,
        },
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def values(cluster: KafkaCluster, topic: str) -> list[bytes]:
    committed = {"isolation.level": "read_committed"}
    return sorted(record.value or b"" for record in cluster.consume(topic, committed))


def test_reads_and_views(results: dict[str, Any]) -> None:
    """
    A batch and a view read every record.
    """
    assert (results["batch_read"], results["sql"]) == (RECORDS, RECORDS)


def test_writes(
    results: dict[str, Any], names: dict[str, str], kafka_cluster: KafkaCluster
) -> None:
    """
    Batch writes of two threads, and an exactly-once stream, write each row once.
    """
    assert results["exactly_once"] == "ended"
    assert values(kafka_cluster, names["once"]) == values(kafka_cluster, names["source"])
    assert values(kafka_cluster, names["written"]) == [
        b"from another thread",
        b"from the main thread",
    ]


def test_poison_is_set_aside(
    results: dict[str, Any], names: dict[str, str], kafka_cluster: KafkaCluster
) -> None:
    """
    A record that the sink of a foreachBatch cannot take goes to the dead-letter topic.
    """
    assert results["poison"] == f"ended {RECORDS - 1}"
    assert values(kafka_cluster, names["dead"]) == [POISON]


def test_listeners(
    results: dict[str, Any], names: dict[str, str], kafka_cluster: KafkaCluster
) -> None:
    """
    The audit of the only batch is complete, and the group's offsets are those of the log's end.
    """
    assert results["listeners"] == {"ended": "ended", "in_time": True, "complete": [True]}
    settings = {"bootstrap.servers": kafka_cluster.bootstrap, "group.id": names["group"]}
    consumer = Consumer(settings)
    try:
        tps = [TopicPartition(names["source"], number) for number in range(2)]
        assert sum(tp.offset for tp in consumer.committed(tps, timeout=20)) == RECORDS
    finally:
        consumer.close()


def test_supervise(results: dict[str, Any]) -> None:
    """
    A query that ends by itself is started once.
    """
    assert results["supervised"] == 1


def test_an_error_of_the_options(results: dict[str, Any]) -> None:
    """
    The client sees the mistake in a few lines, if the server's stack traces are switched off.
    """
    assert "did you mean 'startingOffsets'" in results["misspelt"]
    assert len(results["misspelt"].strip().splitlines()) <= 3
