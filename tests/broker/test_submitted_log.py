"""
The connector's log and Spark's on stderr of a submitted job.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from tests.broker.test_mistakes import Refusing
from tests.support.short_jvm import SHORT_DRIVER
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka.spark.compat import SPARK_VERSION
from pyspark_pykafka.testing import find_java

JOB = Path(__file__).with_name("submitted_log_job.py")
ERROR_JOB = Path(__file__).with_name("submitted_error_job.py")
BETWEEN = re.compile(r"^=== begin (\w+)(.*)\n((?:.*\n)*?)=== end$", re.MULTILINE)
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
SETTINGS = {
    **SHORT_DRIVER,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.python.filterPushdown.enabled": "true",
}
#: The lines that Spark logs around the error of each query, as on docs/failing.md.
SPARK_LINES = {"load": 0, "batch": 70, "write": 140, "stream": 220}
PAGE = Path(__file__).parents[2] / "docs/failing.md"
MASTER = ["--master", "local[2]", *(f"--conf={name}={value}" for name, value in SETTINGS.items())]
HAS_PUSHDOWN = SPARK_VERSION >= (4, 1)


def stderr_of(*command: str | Path, **environment: str) -> list[str]:
    """
    Return the lines that a job writes to stderr.
    """
    result = subprocess.run(
        command,
        env={
            **os.environ,
            "JAVA_HOME": str(find_java().parent.parent),
            "PYSPARK_PYTHON": sys.executable,
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4_000:]
    return result.stderr.splitlines()


@pytest.mark.soak
def test_plans_and_requests_are_on_stderr() -> None:
    """
    With PYKAFKA_LOG=debug, stderr of spark-submit has a line for the plan of a batch and of each
    micro-batch of a stream, and with kafka.debug one for each request.

    Spark plans and reads in processes that the program cannot configure.
    """
    with StubCluster(Behaviour(high_watermark=7)) as cluster:
        lines = stderr_of(SUBMIT, *MASTER, JOB, cluster.bootstrap, PYKAFKA_LOG="debug")

    plans = [line.partition(" INFO pyspark_pykafka: ")[2] for line in lines]
    narrowed = "t-0[3, latest); filters: offset >= 3" if HAS_PUSHDOWN else "t-0[earliest, latest)"
    assert [plan for plan in plans if plan.startswith("reading t")] == [
        f"reading t: all records in 1 ranges: {narrowed}",
        "reading t: at most 7 records in 1 ranges: t-0[0, 7)",
    ]
    assert any("DEBUG pyspark_pykafka.wire: " in line and "sent Fetch" in line for line in lines)


@pytest.mark.soak
def test_a_log_level_silences_spark_around_an_error(tmp_path: Path) -> None:
    """
    In a program that Python runs, Spark logs its stack traces around an expected error, about as
    many lines as the page says for Spark 4.2, and none at the level FATAL.
    """
    settings = {"PYSPARK_SUBMIT_ARGS": shlex.join([*MASTER, "pyspark-shell"])}
    with StubCluster(Refusing(high_watermark=10_000)) as cluster:
        lines = stderr_of(sys.executable, ERROR_JOB, cluster.bootstrap, str(tmp_path), **settings)

    text = "\n".join(lines)
    logged = {
        (query, level.strip()): body.splitlines() for query, level, body in BETWEEN.findall(text)
    }
    assert logged.keys() == {(query, level) for query in SPARK_LINES for level in ("", "FATAL")}
    counts = {query: len(logged[query, ""]) for query in SPARK_LINES}
    assert "about {batch}, {write} and {stream} lines".format(**SPARK_LINES) in PAGE.read_text()
    if SPARK_VERSION == (4, 2):
        assert counts == pytest.approx(SPARK_LINES, rel=0.25)
    assert [logged[query, "FATAL"] for query in SPARK_LINES] == [[]] * len(SPARK_LINES)
