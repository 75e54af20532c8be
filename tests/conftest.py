"""
Shared fixtures and options: one Spark session, checkpoints, and the selection of slow tests.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import hypothesis
import pyspark
import pytest
from tests.support.short_jvm import SHORT_DRIVER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

#: The only Spark version whose JVM connector the side-by-side tests fetch and run.
JVM_CONNECTOR_SPARK = "4.2.0"

# A process started in the background by a shell ignores SIGINT, and so would all programs that the
# tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


# The duration of an example depends on the machine more than on the code.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """
    Add the options of `make slow`, `make browser` and `make promtool`.
    """
    parser.addoption("--soak", action="store_true", help="run only the slow tests, marked soak")
    parser.addoption(
        "--browser", action="store_true", help="run only the tests in a browser, marked browser"
    )
    parser.addoption(
        "--promtool", action="store_true", help="run only the tests with promtool, marked promtool"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """
    Select the slow tests, the browser tests, the promtool tests or all others, and deselect the
    side-by-side tests for Spark versions without a published JVM connector.
    """
    for marker in ("soak", "browser", "promtool"):
        is_requested = config.getoption(f"--{marker}")
        # Keywords contain the names of folders, too.
        items[:] = [i for i in items if (i.get_closest_marker(marker) is not None) == is_requested]
    if pyspark.__version__ != JVM_CONNECTOR_SPARK:
        items[:] = [item for item in items if "side_by_side" not in item.keywords]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """
    One session for all tests, with the JVM connector too if it supports this Spark version.
    """
    from pyspark.sql import SparkSession

    from pyspark_pykafka.testing import find_java, spark_connector_jars

    os.environ.setdefault("JAVA_HOME", str(find_java().parent.parent))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("pykafka-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        # A cancelled task ends its transaction by itself; on a busy machine 2 s are too short.
        .config("spark.python.task.killTimeout", "30s")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "America/St_Johns")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.sql.streaming.noDataProgressEventInterval", "200")
    )
    if pyspark.__version__ == JVM_CONNECTOR_SPARK:
        jars = ",".join(str(jar) for jar in spark_connector_jars())
        builder = builder.config("spark.jars", jars)
    for name, value in SHORT_DRIVER.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """
    Return a folder for a query's checkpoint that does not exist yet.
    """
    return str(tmp_path / "checkpoint")
