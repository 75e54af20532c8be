"""
A Spark Connect server on loopback, a process of its own.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.short_jvm import SHORT_DRIVER
from tests.support.spark_process import HOST, spark_process

from pyspark_pykafka.testing import find_java
from pyspark_pykafka.testing.ports import free_ports, is_free
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

_START_SECONDS = 120.0
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_LOG_CHARACTERS = 3_000


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """
    Start a server with two cores, whose Python has this package and the tests; yield its address.
    """
    (port,) = free_ports(1)
    settings = {
        **SHORT_DRIVER,
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
    }
    confs = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    root = Path(__file__).parents[2]
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java().parent.parent),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")])),
    }
    log = folder / "connect-server.log"
    words = ["--master", "local[2]", *confs, "--class", _SERVER, "spark-internal"]
    with spark_process(log, "spark-submit", words, environment) as process:
        wait_until(lambda: _not_ready(process, port, log), _START_SECONDS)
        yield f"sc://{HOST}:{port}"


def _not_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> str | None:
    if process.poll() is not None:
        msg = f"The Connect server ended: {log.read_text()[-_LOG_CHARACTERS:]}"
        raise RuntimeError(msg)
    return f"nothing listens on port {port}" if is_free(port) else None
