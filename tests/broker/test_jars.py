"""
Jars are downloaded once and completely, or an error with advice is raised.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pyspark_pykafka.testing import FetchError, KafkaCluster, fetch_jars, spark_connector_jars

if TYPE_CHECKING:
    from pathlib import Path


def test_unknown_version_raises_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A failed download raises one clear error and leaves the cache unchanged.
    """
    monkeypatch.setenv("PYKAFKA_CACHE", str(tmp_path))
    with pytest.raises(FetchError, match=r"kafka-9\.9\.9 could not be downloaded[\s\S]*not found"):
        KafkaCluster(version="9.9.9").start()
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == []


def test_two_processes_download_jars_once(tmp_path: Path) -> None:
    """
    Two processes that request the same jars at the same time both get all of them.
    """
    code = (
        "import sys; from pathlib import Path; from pyspark_pykafka.testing import fetch_jars; "
        "jars = fetch_jars(['org.slf4j:slf4j-simple:1.7.36'], Path(sys.argv[1])); "
        "print(*(jar.name for jar in jars))"
    )
    target = tmp_path / "jars"
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(target)], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    assert [process.communicate(timeout=120)[0] for process in processes] == [
        b"slf4j-simple-1.7.36.jar\n"
    ] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == [".jars.lock", "jars"]


def test_jvm_connector_comes_without_dependencies() -> None:
    """
    The JVM connector has exactly the four jars that it needs on pyspark.
    """
    names = [jar.name.rsplit("-", 1)[0] for jar in spark_connector_jars()]
    assert names == [
        "commons-pool2",
        "kafka-clients",
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
    ]
    assert fetch_jars([], spark_connector_jars()[0].parent) == spark_connector_jars()
