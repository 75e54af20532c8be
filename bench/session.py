"""
Starts the one Spark session in which every contender runs.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from pyspark_pykafka.testing import find_java, spark_connector_jars

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from py4j.java_gateway import JVMView

ROOT = Path(__file__).resolve().parents[1]

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@contextmanager
def running_spark(cores: int, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """
    Give a session with so many cores that has the JVM connector as well, and stop it at the end.

    ``conf`` is what Spark is told besides, and wins over what we tell it.
    """
    os.environ.setdefault("JAVA_HOME", str(find_java().parents[1]))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Workers import the ceiling from here, wherever Spark starts them.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    builder = SparkSession.builder.appName("pykafka-bench").master(f"local[{cores}]")
    builder = builder.config("spark.jars", ",".join(map(str, spark_connector_jars())))
    with TemporaryDirectory() as folder:
        builder = builder.config("spark.sql.warehouse.dir", folder)
        for name, setting in {**SETTINGS, **conf}.items():
            builder = builder.config(name, setting)
        spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()


def jvm_pid(spark: SparkSession) -> int:
    """
    Return the process id of the driver's JVM.
    """
    return int(_jvm(spark).java.lang.ProcessHandle.current().pid())


def collect_garbage(spark: SparkSession) -> None:
    """
    Clear the JVM's heap, so that no contender pays for the one before it.
    """
    _jvm(spark).System.gc()


def _jvm(spark: SparkSession) -> JVMView:
    view = spark._jvm  # noqa: SLF001 (PySpark's own door to Java)
    assert view is not None
    return view
