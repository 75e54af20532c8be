"""
The connector's log on stderr of a submitted job.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
from tests.support.short_jvm import SHORT_DRIVER
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka.spark.compat import SPARK_VERSION
from pyspark_pykafka.testing import find_java

JOB = Path(__file__).with_name("submitted_log_job.py")
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
SETTINGS = {
    **SHORT_DRIVER,
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.python.filterPushdown.enabled": "true",
}
HAS_PUSHDOWN = SPARK_VERSION >= (4, 1)


def test_plans_and_requests_are_on_stderr() -> None:
    """
    With PYKAFKA_LOG=debug, stderr of spark-submit has a line for the plan of a batch and of each
    micro-batch of a stream, and with kafka.debug one for each request.

    Spark plans and reads in processes that the program cannot configure.
    """
    settings = [f"--conf={name}={value}" for name, value in SETTINGS.items()]
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java().parent.parent),
        "PYSPARK_PYTHON": sys.executable,
        "PYKAFKA_LOG": "debug",
    }
    with StubCluster(Behaviour(high_watermark=7)) as cluster:
        result = subprocess.run(
            [SUBMIT, "--master", "local[2]", *settings, JOB, cluster.bootstrap],
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    assert result.returncode == 0, result.stderr[-4_000:]
    lines = result.stderr.splitlines()
    plans = [line.partition(" INFO pyspark_pykafka: ")[2] for line in lines]
    narrowed = "t-0[3, latest); filters: offset >= 3" if HAS_PUSHDOWN else "t-0[earliest, latest)"
    assert [plan for plan in plans if plan.startswith("reading t")] == [
        f"reading t: all records in 1 ranges: {narrowed}",
        "reading t: at most 7 records in 1 ranges: t-0[0, 7)",
    ]
    assert any("DEBUG pyspark_pykafka.wire: " in line and "sent Fetch" in line for line in lines)
