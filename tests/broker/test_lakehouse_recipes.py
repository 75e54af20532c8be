"""
The recipes for Delta Lake and Iceberg, with the jars that their commands name.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.page_blocks import ROOT, blocks_of
from tests.support.streams import delete_topic

from pyspark_pykafka.spark.compat import SPARK_VERSION
from pyspark_pykafka.testing import Record, find_java
from pyspark_pykafka.testing.jars import cache_folder, fetch_jars

if TYPE_CHECKING:
    from pyspark_pykafka.testing import KafkaCluster

JOB = Path(__file__).with_name("lakehouse_job.py")
SECONDS = 300
TOPIC = "flights"
#: Jars that the page does not name, since `--packages` finds them by itself.
DEPENDENCIES = {"delta": ["io.delta:delta-storage:4.4.0"], "iceberg": []}

#: The versions of Spark that the jars are for.
VERSIONS = {"delta": (4, 2), "iceberg": (4, 1)}
MADE_FOR_THIS_SPARK = [name for name, version in VERSIONS.items() if SPARK_VERSION[:2] == version]

pytestmark = pytest.mark.soak


def jars_of(lakehouse: str) -> list[str]:
    """
    Return the paths of the jars that the page names.
    """
    commands = (block.text for block in blocks_of("docs/recipes.md") if block.language == "sh")
    (command,) = (text for text in commands if lakehouse in text)
    packages = re.findall(r"--packages (\S+)", command) + DEPENDENCIES[lakehouse]
    version = packages[0].rpartition(":")[2]
    return [str(jar) for jar in fetch_jars(packages, cache_folder() / f"{lakehouse}-{version}")]


@pytest.mark.parametrize("lakehouse", MADE_FOR_THIS_SPARK)
def test_a_repeated_micro_batch_changes_nothing(
    lakehouse: str, kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """
    The blocks run as they stand, and the table has each record once after its micro-batch was
    written twice.
    """
    kafka_cluster.create_topic(TOPIC)
    landed = "2026-11-24T08:00:00Z"
    values: list[dict[str, Any]] = [
        {"id": number, "carrier": "AA", "delay": number, "landed": landed} for number in range(5)
    ]
    kafka_cluster.produce(TOPIC, [Record(json.dumps(value).encode()) for value in values])
    try:
        process = subprocess.run(
            [
                *(sys.executable, str(JOB), kafka_cluster.bootstrap, str(tmp_path), lakehouse),
                *jars_of(lakehouse),
            ],
            env={
                **os.environ,
                "JAVA_HOME": str(find_java().parent.parent),
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": str(ROOT),
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    finally:
        delete_topic(kafka_cluster, TOPIC)

    assert process.returncode == 0, process.stderr[-5000:]
    result = json.loads(process.stdout.splitlines()[-1])
    assert result == {"ids": [0, 1, 2, 3, 4], "read": 5}
