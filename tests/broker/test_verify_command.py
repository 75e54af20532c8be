"""
`pykafka verify` on real brokers: a clean run, planted faults, and brokers killed during a run.
"""

from __future__ import annotations

import json
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from tests.support.dev_command import read_address, start_dev
from tests.support.processes import broker_processes

from pyspark_pykafka.cli import main
from pyspark_pykafka.testing import ExternalCluster, KafkaAccess, KafkaCluster, Record
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

SECONDS = 60
COMMITTED = {"isolation.level": "read_committed"}


def topics(cluster: KafkaAccess, prefix: str) -> list[str]:
    """
    Return the topics of runs with this prefix.
    """
    names = cluster.admin().list_topics(timeout=SECONDS).topics
    return sorted(name for name in names if name.startswith(prefix))


def output_records(cluster: KafkaAccess, prefix: str) -> list[Record]:
    """
    Return the records of the output topic of the only run with this prefix.
    """
    outputs = [name for name in topics(cluster, prefix) if name.endswith("-output")]
    return cluster.consume(outputs[0], COMMITTED) if outputs else []


def meanwhile(act: Callable[[], None]) -> threading.Thread:
    """
    Start an action that runs while the command runs.
    """
    thread = threading.Thread(target=act)
    thread.start()
    return thread


def verify(
    cluster: KafkaAccess,
    prefix: str,
    capsys: pytest.CaptureFixture[str],
    *options: str,
) -> tuple[int, dict[str, Any]]:
    """
    Run the command, and return its exit code and its report.
    """
    brokers = ["--bootstrap-server", cluster.bootstrap, "--topic-prefix", prefix]
    code = main(["verify", *brokers, "--json", *options])
    return code, json.loads(capsys.readouterr().out)


def test_clean_run_leaves_nothing_behind(
    spark: SparkSession, kafka_cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    Every acknowledged record is read once, and no aborted one; the topics are deleted afterwards.
    """
    assert spark.version
    code, report = verify(kafka_cluster, "verify-clean", capsys, "--seconds", "8", "--rate", "200")

    assert (code, report["verdict"], report["anomalies"]) == (0, "clean", {})
    assert report["read"] == report["acknowledged"] > 500
    assert report["aborted"] > 100
    wait_until(lambda: ", ".join(topics(kafka_cluster, "verify-clean")) or None, SECONDS)


def test_planted_duplicate_phantom_and_loss_are_found(
    spark: SparkSession, kafka_cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    Repeated, foreign and deleted records in the output topic are anomalies: exit code 1.
    """
    assert spark.version
    prefix = "verify-planted"

    def plant() -> None:
        wait_until(
            lambda: (
                None
                if {record.partition for record in output_records(kafka_cluster, prefix)} >= {0, 1}
                else "nothing copied"
            ),
            SECONDS,
        )
        name = next(name for name in topics(kafka_cluster, prefix) if name.endswith("-output"))
        first = kafka_cluster.consume(name, COMMITTED)[0]
        copied = Record(first.value, partition=first.partition)
        kafka_cluster.produce(name, [copied, Record(b"of nobody", partition=0)])
        admin = kafka_cluster.admin()
        for future in admin.delete_records([TopicPartition(name, 1, 2)]).values():
            future.result(SECONDS)

    planting = meanwhile(plant)
    code, report = verify(kafka_cluster, prefix, capsys, "--seconds", "6", "--rate", "100")
    planting.join()

    assert (code, report["verdict"]) == (1, "anomaly")
    assert {kind: len(anomalies) for kind, anomalies in report["anomalies"].items()} == {
        "duplicate": 1,
        "phantom": 1,
        "lost": 2,
    }


@pytest.mark.soak
@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_killed_broker_is_no_anomaly(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], guarantee: str
) -> None:
    """
    If one of three brokers is killed and restarted during the run, the verdict is clean.
    """
    assert spark.version
    config = tmp_path / "client.properties"
    config.write_text("request.timeout.ms=10000\n")
    with KafkaCluster(3) as cluster:

        def strike() -> None:
            wait_until(
                lambda: None if output_records(cluster, "verify-kill") else "nothing copied",
                SECONDS,
            )
            cluster.kill(2)
            cluster.restart(2)

        striking = meanwhile(strike)
        options = ("--seconds", "30", "--guarantee", guarantee, "--command-config", str(config))
        code, report = verify(cluster, "verify-kill", capsys, *options)
        striking.join()

    assert (code, report["verdict"], report["anomalies"]) == (0, "clean", {})
    assert report["read"] >= report["acknowledged"] > 1_000


@pytest.mark.soak
def test_a_broker_of_the_dev_command_is_killed_by_hand(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    One of the three brokers of `pykafka dev --brokers 3` is killed during the run, and the command
    starts it again: the verdict is clean.
    """
    assert spark.version
    with start_dev("--brokers", "3") as dev:
        cluster = ExternalCluster(read_address(dev.stdout)).start()
        restarted: list[str] = []

        def strike() -> None:
            wait_until(
                lambda: None if output_records(cluster, "verify-dev") else "nothing copied",
                SECONDS,
            )
            broker_processes(dev.pid)[1].kill()
            assert dev.stderr is not None
            restarted.extend(dev.stderr.readline() for _ in range(2))

        striking = meanwhile(strike)
        code, report = verify(cluster, "verify-dev", capsys, "--seconds", "40")
        striking.join()
        dev.send_signal(signal.SIGINT)
        dev.communicate(timeout=SECONDS)

    assert "is back" in restarted[1]
    assert (code, report["verdict"], report["anomalies"]) == (0, "clean", {})
    assert report["read"] >= report["acknowledged"] > 1_000


@pytest.mark.soak
def test_nemesis_starts_and_breaks_brokers(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    With --nemesis the command starts its own three brokers and disturbs them; the verdict is clean.
    """
    assert spark.version
    code = main(["verify", "--nemesis", "--seconds", "60", "--json"])

    report = json.loads(capsys.readouterr().out)
    assert (code, report["verdict"], report["anomalies"]) == (0, "clean", {})
    assert report["strikes_of_the_nemesis"] >= 2
