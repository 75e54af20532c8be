"""
Runs each example, as a user would or in the session of the tests, and checks its effect with a
Kafka client or by its output.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyspark
import pytest
from pyspark.sql import SparkSession
from tests.support.short_jvm import OPTIONS

import pyspark_pykafka
from pyspark_pykafka.testing import KafkaCluster, Record, find_java

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES = Path(__file__).parents[2] / "examples"
PACKAGE = Path(pyspark_pykafka.__file__).parent
SITE_PACKAGES = Path(pyspark.__file__).parents[1]
SUBMIT = SITE_PACKAGES / "pyspark" / "bin" / "spark-submit"
SECONDS = 240
SPARK_DEFAULTS = (
    "spark.sql.shuffle.partitions 2\n"
    "spark.ui.enabled false\n"
    f"spark.driver.extraJavaOptions {OPTIONS}\n"
)
FIND_PACKAGE = "import importlib.util; print(importlib.util.find_spec('pyspark_pykafka'))"


class Run(Protocol):
    """
    Runs a command in an empty folder, expects success, and returns its output.
    """

    def __call__(self, *command: str | Path, **environment: str) -> str: ...


class Example(Protocol):
    """
    Runs an example by its name, and returns its output.
    """

    def __call__(self, name: str, *arguments: str | Path) -> str: ...


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """
    Return a function that runs a command, with Spark settings for small data.
    """
    base = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(tmp_path),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    base.setdefault("JAVA_HOME", str(find_java().parents[1]))
    (tmp_path / "spark-defaults.conf").write_text(SPARK_DEFAULTS)

    def running(*command: str | Path, **environment: str) -> str:
        result = subprocess.run(
            list(map(str, command)),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            cwd=tmp_path,
            env=base | environment,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    return running


@pytest.fixture
def example(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Example:
    """
    Return a function that runs an example by name on the test broker, in the session of the tests,
    which goes on when the example stops it.
    """
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)

    def running(name: str, *arguments: str | Path) -> str:
        script = str(EXAMPLES / f"{name}.py")
        servers = ("--bootstrap-servers", kafka_cluster.bootstrap)
        monkeypatch.setattr(sys, "argv", [script, *servers, *map(str, arguments)])
        assert SparkSession.builder.getOrCreate() is spark
        runpy.run_path(script, run_name="__main__")
        return capsys.readouterr().out

    return running


@pytest.fixture
def greetings(kafka_cluster: KafkaCluster, topic: Callable[..., str]) -> str:
    """
    Return a topic with three records, two of them with the same key.
    """
    name = topic(partitions=2)
    records = [(b"en", b"good morning", 0), (b"fr", b"bonjour", 1), (b"en", b"good night", 0)]
    kafka_cluster.produce(name, [Record(v, key=k, partition=p) for k, v, p in records])
    return name


def test_read_batch_shows_every_record(example: Example, greetings: str) -> None:
    """
    The table has one row for each record, ordered by partition and offset.
    """
    output = example("read_batch", "--topic", greetings)

    cells = [line.split("|") for line in output.splitlines() if line.startswith("|")]
    rows = [(c[1].strip(), c[2].strip(), c[4].strip(), c[5].strip()) for c in cells[1:]]
    assert rows == [
        ("0", "0", "en", "good morning"),
        ("0", "1", "en", "good night"),
        ("1", "0", "fr", "bonjour"),
    ]


def test_write_batch_appends_each_row(
    example: Example, kafka_cluster: KafkaCluster, topic: Callable[..., str]
) -> None:
    """
    The topic has the keys and values of the example's rows once each.
    """
    name = topic()

    example("write_batch", "--topic", name)

    written = {(record.key, record.value) for record in kafka_cluster.consume(name)}
    assert written == {(b"en", b"good morning"), (b"fr", b"bonjour"), (b"de", b"guten Morgen")}


def test_read_stream_counts_by_key(run: Run, kafka_cluster: KafkaCluster, greetings: str) -> None:
    """
    In a process of its own, the printed table has the number of records by key.
    """
    arguments = ("--bootstrap-servers", kafka_cluster.bootstrap, "--topic", greetings, "--once")
    # Spark's JVM prints the table.
    output = run(sys.executable, EXAMPLES / "read_stream.py", *arguments)

    assert "| en|    2|" in output
    assert "| fr|    1|" in output


def test_stream_to_stream_resumes_from_its_checkpoint(
    example: Example,
    kafka_cluster: KafkaCluster,
    greetings: str,
    topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    """
    A second run writes only the records produced since the first, in upper case with their keys.
    """
    shouts = topic()
    arguments = ("--topic", greetings, "--to", shouts, "--checkpoint", tmp_path / "checkpoint")

    example("stream_to_stream", *arguments)
    kafka_cluster.produce(greetings, [Record(b"hallo", key=b"de")])
    example("stream_to_stream", *arguments)

    written = [(record.key, record.value) for record in kafka_cluster.consume(shouts)]
    assert written[-1] == (b"de", b"HALLO")
    assert sorted(written[:-1]) == [
        (b"en", b"GOOD MORNING"),
        (b"en", b"GOOD NIGHT"),
        (b"fr", b"BONJOUR"),
    ]


def test_submit_job_counts_by_partition(example: Example, greetings: str) -> None:
    """
    In a session that has the package, registering it again has no effect.
    """
    output = example("submit_job", "--topic", greetings)

    assert "|        0|    2|" in output
    assert "|        1|    1|" in output


# test_submitted_log.py submits a job in `make test`.
@pytest.mark.soak
def test_submit_job_counts_with_an_installed_package(
    run: Run, kafka_cluster: KafkaCluster, greetings: str
) -> None:
    """
    spark-submit runs the job with an installed package; registering it again has no effect.
    """
    arguments = ("--bootstrap-servers", kafka_cluster.bootstrap, "--topic", greetings)

    output = run(SUBMIT, "--master", "local[2]", EXAMPLES / "submit_job.py", *arguments)

    assert "|        0|    2|" in output
    assert "|        1|    1|" in output


@pytest.mark.soak
def test_submit_job_ships_the_package(
    run: Run, kafka_cluster: KafkaCluster, greetings: str, tmp_path: Path
) -> None:
    """
    A zip passed with --py-files is enough if only the package's dependencies are installed.

    A Python outside the virtual environment finds the packages in its folder, but not this one,
    which is only a link of pip's editable install there.
    """
    python = Path(sys.base_prefix) / "bin" / "python3"
    outside = {"PYSPARK_PYTHON": str(python), "PYTHONPATH": str(SITE_PACKAGES)}
    archive = zipped_package(tmp_path / "pykafka.zip")
    arguments = ("--bootstrap-servers", kafka_cluster.bootstrap, "--topic", greetings)

    assert "None" in run(python, "-c", FIND_PACKAGE, **outside)
    ship = ("--master", "local[2]", "--py-files", archive)
    output = run(SUBMIT, *ship, EXAMPLES / "submit_job.py", *arguments, **outside)

    assert "|        0|    2|" in output


@pytest.mark.smoke
def test_demo_agrees_with_pandas(run: Run) -> None:
    """
    The demo succeeds with its own broker, and its result equals that of pandas. It shows each step
    of the set-up, and how many records are written and read.
    """
    output = run(sys.executable, EXAMPLES / "demo.py", "--flights", "20000")

    text = " ".join(output.split())
    assert "20,000 flights, none lost or duplicated" in text
    steps = ("Starting a Kafka broker", "Starting Spark", "Loading the flights")
    assert all(f"- {label}" in text for label in steps), text
    for label in ("written to flights", "read by the stream"):
        assert re.search(rf"{label} \S+ 20000/20000 [\d,]+ records/s", text), text


def zipped_package(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for module in PACKAGE.rglob("*.py"):
            archive.write(module, module.relative_to(PACKAGE.parent))
    return path
