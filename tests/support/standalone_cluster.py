"""
A Spark standalone cluster on loopback: a master and workers, each a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from pyspark_pykafka.testing import find_java
from pyspark_pykafka.testing.ports import free_ports
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

HOST = "127.0.0.1"
_SPARK_HOME = Path(pyspark.__file__).parent
_START_SECONDS = 120.0
_STOP_SECONDS = 60.0
_JOB_SECONDS = 280.0
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
#: The tests' own settings of Python, which a node of a cluster does not have.
_PYTHON_SETTINGS = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


@dataclass(frozen=True, slots=True)
class StandaloneCluster:
    """
    A running cluster; :meth:`submit` runs a job with a driver of its own.
    """

    url: str

    def submit(
        self,
        job: Path,
        arguments: Sequence[str],
        submit_options: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
    ) -> subprocess.CompletedProcess[str]:
        """
        Run a job with ``spark-submit`` in a folder, with one core and 512 MB for each executor.
        """
        settings = {"spark.driver.host": HOST, "spark.ui.enabled": "false"}
        confs = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        return subprocess.run(
            [
                *(str(_SPARK_HOME / "bin" / "spark-submit"), "--master", self.url, *confs),
                *("--executor-memory", "512m", *submit_options, str(job), *arguments),
            ],
            env={**_environment(), **environment},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_JOB_SECONDS,
            check=False,
        )


@contextmanager
def standalone_cluster(folder: Path, workers: int) -> Iterator[StandaloneCluster]:
    """
    Start a master and workers of one core, and stop them at the end.
    """
    port, page = free_ports(2)
    url = f"spark://{HOST}:{port}"
    with ExitStack() as stack:

        def start(name: str, *words: str) -> None:
            stack.enter_context(_process(folder / f"{name}.log", [*words, "--host", HOST]))

        start("master", _MASTER, "--port", str(port), "--webui-port", str(page))
        for number in range(workers):
            options = ("--work-dir", str(folder / f"worker-{number}"), "--webui-port", "0")
            start(f"worker-{number}", _WORKER, url, "--cores", "1", "--memory", "1g", *options)
        wait_until(lambda: _missing_workers(page, workers), _START_SECONDS)
        yield StandaloneCluster(url)


def _missing_workers(page: int, workers: int) -> str | None:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{page}/json/", timeout=10) as response:
            alive = json.load(response)["aliveworkers"]
    except OSError as error:
        return f"the master does not respond: {error}"
    except json.JSONDecodeError:
        return "the master still answers with its page instead of JSON"
    return None if alive == workers else f"{alive} of {workers} workers are alive"


@contextmanager
def _process(log: Path, words: Sequence[str]) -> Iterator[None]:
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(_SPARK_HOME / "bin" / "spark-class"), *words],
            env=_environment(),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(_STOP_SECONDS)


def _environment() -> dict[str, str]:
    environment = {
        name: value for name, value in os.environ.items() if name not in _PYTHON_SETTINGS
    }
    return {
        **environment,
        "JAVA_HOME": str(find_java().parent.parent),
        "SPARK_HOME": str(_SPARK_HOME),
        # The cluster's processes stay in the foreground.
        "SPARK_NO_DAEMONIZE": "1",
    }
