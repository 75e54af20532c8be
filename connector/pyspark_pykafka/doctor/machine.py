"""
Checks this machine: Python, Spark, the workers' Python, Java, compiled modules, Spark's settings.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_pykafka.doctor.finding import Finding, failed, ok, skipped, warning
from pyspark_pykafka.spark.compiled_modules import (
    COMPILED,
    describe_missing,
    missing_compiled_modules,
)
from pyspark_pykafka.testing.java import java_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DISTRIBUTION = "pyspark-pykafka"
_WORKER_SECONDS = 60
_SPARK_VERSIONS = (4, 5)
_PASSES_START_OFFSET = (4, 2)
_JAVA_VERSIONS = (17, 21)
_DEFAULTS = "spark-defaults.conf"
_WORKER_PYTHON = "worker python"
_WORKER_SETTING = "spark.pyspark.python"
_WORKER_PROGRAM = """
import json, sys
from importlib import import_module
from importlib.metadata import version
import pyspark_pykafka
print(json.dumps([list(sys.version_info[:2]), version("pyspark-pykafka")]))
"""
#: Spark settings worth setting: the first version that has them, the value to set, and the reason.
_SETTINGS = {
    "spark.python.unix.domain.socket.enabled": (
        (4, 1),
        "true",
        "records of 1 KB and more then move faster between Python and Java",
    ),
}
_STACKTRACE = "spark.sql.connect.serverStacktrace.enabled"
_WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


def check_machine(
    settings: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> Iterator[Finding]:
    """
    Yield the findings. ``settings`` are Spark's, from the user or from :func:`spark_defaults`.
    """
    environment = os.environ if environment is None else environment
    yield ok("connector", f"pyspark-pykafka {version(_DISTRIBUTION)}")
    yield ok("python", f"Python {platform.python_version()}, {sys.executable}")
    spark = installed_spark()
    yield check_spark(spark)
    yield check_worker_python(environment, settings)
    yield check_java(environment)
    yield check_compiled(missing_compiled_modules())
    yield from check_settings(settings, _version_numbers(spark))
    yield from check_connect(settings, environment)


def installed_spark() -> str | None:
    """
    Return the version of PySpark, or None if it is not installed.
    """
    try:
        return version("pyspark")
    except PackageNotFoundError:
        # The Spark of a cluster is often on the path without being an installed distribution.
        if find_spec("pyspark") is None:
            return None
        return str(import_module("pyspark.version").__version__)


def check_spark(spark: str | None) -> Finding:
    """
    Check that Spark is installed in a supported version, and that an availableNow run reads
    everything, also with read limits.
    """
    if spark is None:
        return failed("spark", "PySpark is not installed", "pip install 'pyspark>=4.0,<5'")
    low, high = _SPARK_VERSIONS
    numbers = _version_numbers(spark)
    if not (low,) <= numbers < (high,):
        advice = "install the version of your cluster: pip install 'pyspark>=4.0,<5'"
        return failed("spark", f"Spark {spark} is not supported; 4.0 to 4.3 are", advice)
    if numbers < _PASSES_START_OFFSET:
        return warning(
            "spark",
            f"Spark {spark} runs availableNow and once as a single micro-batch, which read limits "
            "can end before everything is read",
            "run the query again for the rest, or use Spark 4.2 or newer, if the stream has "
            "maxOffsetsPerTrigger or another limit",
        )
    return ok("spark", f"Spark {spark}")


def check_worker_python(environment: Mapping[str, str], settings: Mapping[str, str]) -> Finding:
    """
    Check that Spark's workers use the same version of Python and of the connector as this process.

    spark-submit prefers the setting spark.pyspark.python to PYSPARK_PYTHON, for driver and workers.
    A program that is started with Python, without spark-submit, ignores the setting.
    """
    name, source, remedy = _worker_python(environment, settings)
    advice = f"{remedy}, or install pyspark-pykafka there"
    python = shutil.which(name, path=environment.get("PATH"))
    if python is None and "/" in name and not Path(name).is_absolute():
        text = f"{name} ({source}) does not exist here"
        where = "check the Python that --archives puts there on an executor"
        return skipped(_WORKER_PYTHON, text, where)
    if python is None:
        return failed(_WORKER_PYTHON, f"{name} ({source}) does not exist", advice)
    mistake = _worker_mistake(python, environment)
    text = f"{python} ({source})"
    if mistake is not None:
        return failed(_WORKER_PYTHON, f"{text} {mistake}", advice)
    return ok(_WORKER_PYTHON, text)


def _worker_mistake(python: str, environment: Mapping[str, str]) -> str | None:
    """
    Return the mistake of a Python as a predicate, such as ``is Python 3.9, this one is 3.11.7``, or
    None if workers can use it.
    """
    try:
        result = subprocess.run(
            [python, "-c", _WORKER_PROGRAM],
            capture_output=True,
            text=True,
            timeout=_WORKER_SECONDS,
            check=False,
            env=dict(environment),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run: {error}"
    if result.returncode:
        reason = result.stderr.strip().rpartition("\n")[2]
        return f"cannot import the connector: {reason}"
    python_version, connector = json.loads(result.stdout)
    if tuple(python_version) != sys.version_info[:2]:
        number = ".".join(map(str, python_version))
        return f"is Python {number}, this one is {platform.python_version()}"
    if connector != version(_DISTRIBUTION):
        return f"has pyspark-pykafka {connector}"
    return None


def _worker_python(
    environment: Mapping[str, str], settings: Mapping[str, str]
) -> tuple[str, str, str]:
    """
    Return the Python of the workers, the setting that names it, and how to use the Python of this
    process instead.
    """
    if setting := settings.get(_WORKER_SETTING):
        remedy = f"set {_WORKER_SETTING} to {sys.executable}"
        return setting, f"{_WORKER_SETTING}, used by spark-submit", remedy
    remedy = f"export PYSPARK_PYTHON={sys.executable}"
    if variable := environment.get("PYSPARK_PYTHON"):
        return variable, "PYSPARK_PYTHON", remedy
    return "python3", "python3 of the PATH", remedy


def check_java(environment: Mapping[str, str]) -> Finding:
    """
    Check the Java that a Spark driver uses on this machine: from JAVA_HOME, otherwise from the
    PATH.
    """
    home = environment.get("JAVA_HOME")
    java = (
        str(Path(home) / "bin" / "java")
        if home
        else shutil.which("java", path=environment.get("PATH"))
    )
    advice = "install Java 17 or 21 and set JAVA_HOME, or: pip install 'pyspark-pykafka[java]'"
    if java is None:
        return failed("java", "no Java: JAVA_HOME is not set, and no java is on the PATH", advice)
    number = java_version(Path(java))
    if number in _JAVA_VERSIONS:
        return ok("java", f"Java {number}, {java}")
    if not number:
        return failed("java", f"{java} does not run", advice)
    if number < min(_JAVA_VERSIONS):
        return failed("java", f"{java} is Java {number}, which is too old for Spark 4", advice)
    return warning("java", f"{java} is Java {number}, which Spark 4 is not tested with", advice)


def check_compiled(missing: Mapping[str, str]) -> Finding:
    """
    Check the compiled modules; ``missing`` maps each unusable one to the reason.
    """
    if not missing:
        return ok("compiled modules", f"all {len(COMPILED)} are installed")
    text, advice = describe_missing(missing)
    return warning("compiled modules", text, advice)


def check_settings(settings: Mapping[str, str], spark: tuple[int, ...]) -> Iterator[Finding]:
    """
    Yield a finding for each Spark setting that is worth setting, and for one that must be removed.
    """
    for name, (since, value, reason) in _SETTINGS.items():
        if spark < since:
            continue
        current = settings.get(name, "").lower()
        text = f"{name} is {current or 'not set'}"
        yield (
            ok("spark setting", text)
            if current == value
            else warning("spark setting", text, f"set it to {value}: {reason}")
        )
    if settings.get(_WRAPPER, "").lower() == "true":
        yield warning(
            "spark setting",
            f"{_WRAPPER} is true",
            "remove it: Spark before 4.2 refuses to restart a stream that has limits if it is set",
        )


def check_connect(settings: Mapping[str, str], environment: Mapping[str, str]) -> Iterator[Finding]:
    """
    Yield a finding about error messages of Spark Connect, if this is a Connect server or client.
    """
    uses_connect = (
        "SPARK_REMOTE" in environment
        or settings.get("spark.api.mode", "").lower() == "connect"
        or "SparkConnectPlugin" in settings.get("spark.plugins", "")
        or any(name == "spark.remote" or name.startswith("spark.connect.") for name in settings)
    )
    if not uses_connect:
        return
    current = settings.get(_STACKTRACE, "").lower()
    text = f"{_STACKTRACE} is {current or 'not set'}"
    yield (
        ok("spark setting", text)
        if current == "false"
        else warning(
            "spark setting",
            text,
            "set it to false: otherwise about a hundred lines of the server's Java stack follow "
            "each error",
        )
    )


def spark_defaults(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """
    Return the settings of the spark-defaults.conf in SPARK_CONF_DIR or below SPARK_HOME.
    """
    environment = os.environ if environment is None else environment
    folder = environment.get("SPARK_CONF_DIR")
    home = environment.get("SPARK_HOME")
    if folder is None and home is None:
        return {}
    path = Path(folder or Path(str(home)) / "conf") / _DEFAULTS
    if not path.exists():
        return {}
    lines = (line.strip() for line in path.read_text().splitlines())
    pairs = (
        line.replace("=", " ", 1).split(None, 1) for line in lines if line[:1] not in ("", "#")
    )
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}


def _version_numbers(spark: str | None) -> tuple[int, ...]:
    parts = (spark or "0").split(".")[:2]
    return tuple(int(part) for part in parts if part.isdigit())
