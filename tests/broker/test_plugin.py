"""
The pytest plugin starts servers for users' tests, and skips or fails if it cannot.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_pykafka.testing import KafkaCluster, ZooKeeper
    from pyspark_pykafka.testing.plugin import TopicFactory


def test_topic_fixture_creates_unique_topics(
    topic: TopicFactory, kafka_cluster: KafkaCluster
) -> None:
    """
    Two topics of one test have different names and the requested settings.
    """
    first, second = topic(partitions=3), topic(cleanup_policy="compact")
    topics = kafka_cluster.admin().list_topics(timeout=10).topics
    assert first != second
    assert (len(topics[first].partitions), len(topics[second].partitions)) == (3, 1)


def test_zookeeper_fixture_has_an_address(zookeeper: ZooKeeper) -> None:
    """
    The fixture's server has a loopback address.
    """
    assert zookeeper.hosts.startswith("127.0.0.1:")


# tests/unit/testing/test_missing_broker.py has each case, without a process.
@pytest.mark.parametrize(
    ("arguments", "environment", "outcome"),
    [
        pytest.param([], {}, "1 skipped", marks=pytest.mark.soak),
        (["--require-broker"], {}, "1 error"),
        pytest.param([], {"CI": "true"}, "1 error", marks=pytest.mark.soak),
    ],
)
def test_missing_broker_skips_tests_unless_required(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], outcome: str
) -> None:
    """
    Without a broker, tests are skipped, but fail with --require-broker or if CI is set.
    """
    (tmp_path / "test_it.py").write_text("def test_it(kafka_cluster): pass\n")
    without_ci = {name: value for name, value in os.environ.items() if name != "CI"}
    # An empty cache without access to jars: the quickest way to have no broker.
    without_jars = {
        "PYKAFKA_CACHE": str(tmp_path),
        "PYKAFKA_IVY_SETTINGS": str(tmp_path / "none.xml"),
    }
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", *arguments],
        cwd=tmp_path,
        env={**without_ci, **without_jars, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert outcome in result.stdout
    assert "could not be downloaded" in result.stdout
