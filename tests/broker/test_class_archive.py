"""
Brokers use the archive of their classes, and start without it if it is damaged.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.processes import broker_processes

from pyspark_pykafka.testing import KAFKA_VERSION, KafkaCluster
from pyspark_pykafka.testing.jars import kafka_jars

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """
    The folder of Kafka's jars in a cache without an archive.
    """
    folder = kafka_jars(KAFKA_VERSION)[0].parent
    monkeypatch.setenv("PYKAFKA_CACHE", str(tmp_path))
    only_jars = tmp_path / folder.name
    only_jars.mkdir()
    for jar in folder.glob("*.jar"):
        shutil.copy2(jar, only_jars)
    return only_jars


def mapped_archives() -> set[str]:
    """
    Return the archives in the cache that the brokers of this process have mapped into memory.
    """
    brokers = broker_processes(os.getpid())
    assert brokers
    cache = os.environ["PYKAFKA_CACHE"]
    return {
        file.path
        for broker in brokers
        for file in broker.memory_maps()
        if file.path.startswith(cache) and file.path.endswith(".jsa")
    }


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory map of a process")
def test_a_broker_uses_the_archive_unless_it_is_damaged(jars: Path) -> None:
    """
    The first start writes an archive, which its brokers use; a damaged one is not used, and does
    not appear in the broker's log.
    """
    with KafkaCluster():
        (archive,) = jars.glob("classes-*.jsa")
        assert mapped_archives() == {str(archive)}

    size = archive.stat().st_size
    archive.unlink()
    archive.write_bytes(bytes(size))
    with KafkaCluster() as kafka:
        assert mapped_archives() == set()
        assert "[cds" not in kafka.log()
