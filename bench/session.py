"""
Starts the Spark session in which all contenders run.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from pyspark_pykafka.testing import fetch_jars, find_java, spark_connector_jars
from pyspark_pykafka.testing.jars import FetchError, cache_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from py4j.java_gateway import JVMView

ROOT = Path(__file__).resolve().parents[1]

#: Has from_avro; everything else that it needs comes with pyspark.
SPARK_AVRO = "org.apache.spark:spark-avro_2.13:4.2.0"
#: Has from_protobuf.
SPARK_PROTOBUF = "org.apache.spark:spark-protobuf_2.13:4.2.0"

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
def running_spark(
    cores: int, conf: Mapping[str, str], further_jars: Sequence[Path] = ()
) -> Iterator[SparkSession]:
    """
    Yield a session with ``cores`` cores, the JVM connector and from_avro, and stop it at the end.

    ``further_jars`` are added to its jars. ``conf`` has further settings, which override ours.
    """
    os.environ.setdefault("JAVA_HOME", str(find_java().parents[1]))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Workers import the ceiling from here, in any working directory.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    builder = SparkSession.builder.appName("pykafka-bench").master(f"local[{cores}]")
    jars = [*spark_connector_jars(), *spark_avro_jars(), *further_jars]
    builder = builder.config("spark.jars", ",".join(map(str, jars)))
    with TemporaryDirectory() as folder:
        builder = builder.config("spark.sql.warehouse.dir", folder)
        for name, setting in {**SETTINGS, **conf}.items():
            builder = builder.config(name, setting)
        spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()


def spark_avro_jars() -> list[Path]:
    """
    Return the jar of Spark's Avro functions, downloaded on first use.
    """
    return fetch_jars([SPARK_AVRO], cache_folder() / "spark-avro-4.2.0")


def spark_protobuf_jars() -> list[Path]:
    """
    Return the jar of Spark's Protobuf functions, downloaded on first use; an empty list if it
    cannot be downloaded.
    """
    try:
        return fetch_jars([SPARK_PROTOBUF], cache_folder() / "spark-protobuf-4.2.0")
    except FetchError:
        return []


def has_from_protobuf(spark: SparkSession) -> bool:
    """
    Return whether the session has the jar of Spark's Protobuf functions.
    """
    return "spark-protobuf" in (spark.conf.get("spark.jars", "") or "")


def jvm_pid(spark: SparkSession) -> int:
    """
    Return the process id of the driver's JVM.
    """
    return int(_jvm(spark).java.lang.ProcessHandle.current().pid())


def collect_garbage(spark: SparkSession) -> None:
    """
    Collect the JVM's garbage, so that no contender pays for the previous one.
    """
    _jvm(spark).System.gc()


def _jvm(spark: SparkSession) -> JVMView:
    view = spark._jvm  # noqa: SLF001 (PySpark's gateway to Java)
    assert view is not None
    return view
