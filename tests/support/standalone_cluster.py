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
from typing import TYPE_CHECKING

from tests.support.spark_process import HOST, SPARK_HOME, spark_process

from pyspark_pykafka.testing import find_java
from pyspark_pykafka.testing.ports import free_ports
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_START_SECONDS = 120.0
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
    #: Where each worker keeps the logs of its executors.
    worker_folders: tuple[Path, ...]

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
                *(str(SPARK_HOME / "bin" / "spark-submit"), "--master", self.url, *confs),
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
    Start a master and workers with one core each, and stop them at the end.

    Executors inherit the environment of their worker: ``NODE_ZONE`` is ``zone-1`` on the first
    worker.
    """
    port, page = free_ports(2)
    url = f"spark://{HOST}:{port}"
    with ExitStack() as stack:

        def start(name: str, *words: str, **variables: str) -> None:
            log, environment = folder / f"{name}.log", {**_environment(), **variables}
            command = [*words, "--host", HOST]
            stack.enter_context(spark_process(log, "spark-class", command, environment))

        start("master", _MASTER, "--port", str(port), "--webui-port", str(page))
        folders = tuple(folder / f"worker-{number}" for number in range(1, workers + 1))
        for number, work in enumerate(folders, 1):
            options = ("--work-dir", str(work), "--webui-port", "0")
            words = (_WORKER, url, "--cores", "1", "--memory", "1g", *options)
            start(work.name, *words, NODE_ZONE=f"zone-{number}")
        wait_until(lambda: _missing_workers(page, workers), _START_SECONDS)
        yield StandaloneCluster(url, folders)


def _missing_workers(page: int, workers: int) -> str | None:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{page}/json/", timeout=10) as response:
            alive = json.load(response)["aliveworkers"]
    except OSError as error:
        return f"the master does not respond: {error}"
    except json.JSONDecodeError:
        return "the master still answers with its page instead of JSON"
    return None if alive == workers else f"{alive} of {workers} workers are alive"


def _environment() -> dict[str, str]:
    environment = {
        name: value for name, value in os.environ.items() if name not in _PYTHON_SETTINGS
    }
    return {
        **environment,
        "JAVA_HOME": str(find_java().parent.parent),
        "SPARK_HOME": str(SPARK_HOME),
        # The cluster's processes stay in the foreground.
        "SPARK_NO_DAEMONIZE": "1",
    }
