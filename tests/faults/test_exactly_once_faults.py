"""
Exactly-once jobs that lose workers, tasks or their driver: each row is visible once, or no row is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyspark_pykafka.engines.selection import transaction_client
from pyspark_pykafka.engines.wire.transactions.values import (
    TransactionState,
)
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.sink.transactional_ids import prefix_pattern
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from pyspark_pykafka.testing import KafkaCluster
    from pyspark_pykafka.testing.plugin import TopicFactory

JOB = Path(__file__).parent / "exactly_once_job.py"
SECONDS = 120.0
COUNT = 40_000
#: The timeout of an abandoned transaction; brokers of tests look for expired ones every second.
SHORT_TIMEOUT = {"kafka.transaction.timeout.ms": "5000"}
COMMITTED = {"isolation.level": "read_committed"}


def start(
    cluster: KafkaCluster, topic: str, fault: str, flag: Path, **options: str
) -> subprocess.Popen[str]:
    """
    Start the job in its own session, so that its processes can be killed together.
    """
    options = {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": topic, **options}
    return subprocess.Popen(
        [sys.executable, JOB, cluster.bootstrap, topic, fault, flag, json.dumps(options)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def visible_numbers(cluster: KafkaCluster, topic: str) -> Counter[int]:
    """
    Return each number that a read_committed reader finds, with its count.
    """
    return Counter(int(r.value or b"") for r in cluster.consume(topic, COMMITTED))


def open_ids(cluster: KafkaCluster, prefix: str) -> list[str]:
    """
    Return the ids of open transactions.
    """
    kafka = KafkaSettings.of({"bootstrap.servers": cluster.bootstrap})
    with transaction_client(kafka) as transactions:
        return transactions.list_ids(prefix_pattern(prefix), [TransactionState.ONGOING])


@pytest.mark.parametrize(
    "fault", ["workers killed", pytest.param("task failed", marks=pytest.mark.soak)]
)
def test_retried_tasks_write_once(
    kafka_cluster: KafkaCluster, topic: TopicFactory, tmp_path: Path, fault: str
) -> None:
    """
    The rows of losing attempts are never visible, and none of their transactions stays open.
    """
    name = topic(partitions=3)
    flag = tmp_path / "flag"
    with start(kafka_cluster, name, fault, flag) as job:
        _, err = job.communicate(timeout=SECONDS)

    assert job.returncode == 0, err[-3_000:]
    assert flag.exists()
    assert visible_numbers(kafka_cluster, name) == Counter(range(COUNT))
    assert open_ids(kafka_cluster, name) == []


@pytest.mark.soak
def test_without_transactions_rows_are_duplicated(
    kafka_cluster: KafkaCluster, topic: TopicFactory, tmp_path: Path
) -> None:
    """
    With at-least-once delivery the same job duplicates rows, so the check of the output can fail.
    """
    name = topic(partitions=3)
    with start(
        kafka_cluster, name, "task failed", tmp_path / "flag", deliveryGuarantee="at-least-once"
    ) as job:
        _, err = job.communicate(timeout=SECONDS)

    assert job.returncode == 0, err[-3_000:]
    visible = visible_numbers(kafka_cluster, name)
    assert set(visible) == set(range(COUNT))
    assert visible.total() > COUNT


def test_a_killed_driver_leaves_nothing_visible(
    kafka_cluster: KafkaCluster, topic: TopicFactory, tmp_path: Path
) -> None:
    """
    If the driver is killed before it commits, the coordinator aborts its transactions after their
    timeout, and no row is visible.
    """
    name = topic(partitions=3)
    flag = tmp_path / "flag"
    with start(kafka_cluster, name, "driver killed", flag, **SHORT_TIMEOUT) as job:
        try:
            wait_until(lambda: None if flag.exists() else "the job has not begun", SECONDS)
            wait_until(
                lambda: (
                    None if len(open_ids(kafka_cluster, name)) > 1 else "no second task has written"
                ),
                SECONDS,
            )
        finally:
            os.killpg(job.pid, 9)
            job.communicate(timeout=SECONDS)

    assert len(kafka_cluster.consume(name)) > 0
    wait_until(lambda: ", ".join(open_ids(kafka_cluster, name)) or None, SECONDS)
    assert visible_numbers(kafka_cluster, name) == Counter()
