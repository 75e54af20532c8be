"""
The environment of a measurement for the JSON file: versions, machine and commit.
"""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import psutil

import pyspark_pykafka
from bench.session import ROOT
from pyspark_pykafka.testing import KAFKA_VERSION, find_java, spark_connector_jars
from pyspark_pykafka.testing.java import java_version

GIT_SECONDS = 10


def versions() -> dict[str, str]:
    """
    Return the versions of all software that affects the results.
    """
    connector = next(jar.stem for jar in spark_connector_jars() if "sql-kafka" in jar.name)
    return {
        "pykafka": pyspark_pykafka.__version__,
        "commit": commit(),
        "spark": version("pyspark"),
        "jvm connector": connector,
        "kafka": KAFKA_VERSION,
        "confluent-kafka": version("confluent-kafka"),
        "pyarrow": version("pyarrow"),
        "python": platform.python_version(),
        "java": str(java_version(find_java())),
    }


def machine() -> dict[str, str | int]:
    """
    Return the CPU, memory and system of this machine.
    """
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 0,
        "memory_bytes": int(psutil.virtual_memory().total),
        "system": platform.platform(),
    }


def _cpu_model() -> str:
    cpu_info = Path("/proc/cpuinfo")
    lines = cpu_info.read_text().splitlines() if cpu_info.exists() else []
    models = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or "unknown")


def commit() -> str:
    """
    Return the commit, marked if files differ from it; `unknown` outside a clone.
    """
    try:
        return _git("rev-parse", "--short=12", "HEAD") + (
            " and changes" if _git("status", "--porcelain", "--untracked-files=no") else ""
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _git(*words: str) -> str:
    result = subprocess.run(
        ["git", *words],  # noqa: S607 (the git on the PATH)
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=GIT_SECONDS,
        check=True,
    )
    return result.stdout.strip()
