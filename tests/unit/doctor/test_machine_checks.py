"""
The findings of `pykafka doctor` about a machine.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from pyspark_pykafka.doctor.finding import Finding, Status
from pyspark_pykafka.doctor.machine import (
    check_compiled,
    check_connect,
    check_java,
    check_machine,
    check_settings,
    check_spark,
    check_worker_python,
    spark_defaults,
)
from pyspark_pykafka.spark.compiled_modules import COMPILED, missing_compiled_modules


def script(path: Path, text: str) -> str:
    """
    Write an executable shell script and return its path.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_this_machine_is_fine() -> None:
    """
    On a machine that runs these tests, no check fails.
    """
    findings = list(check_machine({}))

    assert [finding for finding in findings if finding.status is Status.FAILED] == []
    assert {"python", "spark", "worker python", "java", "compiled modules"} <= {
        finding.check for finding in findings
    }


@pytest.mark.parametrize(
    ("spark", "status"),
    [
        (None, Status.FAILED),
        ("3.5.4", Status.FAILED),
        ("4.0.1", Status.WARNING),
        ("4.2.0", Status.OK),
        ("4.3.0.dev1", Status.OK),
        ("5.0.0", Status.FAILED),
    ],
)
def test_versions_of_spark(spark: str | None, status: Status) -> None:
    """
    Spark 4 is needed; versions before 4.2 are a warning.
    """
    assert check_spark(spark).status is status


def test_a_worker_python_without_the_connector(tmp_path: Path) -> None:
    """
    The finding names the variable, the Python and its error, and what to set.
    """
    python = script(tmp_path / "python3", "echo 'ImportError: No module named x' >&2; exit 1")

    finding = check_worker_python({"PYSPARK_PYTHON": python}, {})
    on_path = check_worker_python({"PATH": str(tmp_path)}, {})

    reason = "cannot import the connector: ImportError: No module named x"
    assert finding.text == f"{python} (PYSPARK_PYTHON) {reason}"
    assert on_path.text == f"{python} (python3 of the PATH) {reason}"
    assert f"export PYSPARK_PYTHON={sys.executable}" in finding.advice


@pytest.mark.parametrize(
    ("report", "text"),
    [
        ('[[3, 99], "0.1.0"]', "is Python 3.99, this one is"),
        (f'[[3, {sys.version_info[1]}], "0.0.1"]', "has pyspark-pykafka 0.0.1"),
    ],
)
def test_another_version_in_the_worker_python(tmp_path: Path, report: str, text: str) -> None:
    """
    Driver and workers need the same Python and the same connector.
    """
    python = script(tmp_path / "python3", f"echo '{report}'")

    finding = check_worker_python({"PYSPARK_PYTHON": python}, {})

    assert (finding.status, text in finding.text) == (Status.FAILED, True)


def test_a_worker_python_that_does_not_exist(tmp_path: Path) -> None:
    """
    A PYSPARK_PYTHON that does not exist is named.
    """
    finding = check_worker_python({"PYSPARK_PYTHON": "/no/python", "PATH": str(tmp_path)}, {})

    assert finding.text == "/no/python (PYSPARK_PYTHON) does not exist"


def test_a_worker_python_of_a_spark_setting(tmp_path: Path) -> None:
    """
    The setting spark.pyspark.python comes before PYSPARK_PYTHON, as in spark-submit, and the advice
    names it.
    """
    python = script(tmp_path / "python3", "echo 'ImportError: No module named x' >&2; exit 1")
    settings = {"spark.pyspark.python": python}

    finding = check_worker_python({"PYSPARK_PYTHON": sys.executable}, settings)

    reason = "cannot import the connector: ImportError: No module named x"
    assert finding.text == f"{python} (spark.pyspark.python, used by spark-submit) {reason}"
    assert f"set spark.pyspark.python to {sys.executable}" in finding.advice


def test_a_worker_python_in_an_archive() -> None:
    """
    A relative path that does not exist here may exist in the executors' folders: it is skipped.
    """
    finding = check_worker_python({}, {"spark.pyspark.python": "./environment/bin/python"})

    assert finding.status is Status.SKIPPED
    assert "./environment/bin/python" in finding.text
    assert "--archives" in finding.advice


@pytest.mark.parametrize(
    ("line", "status", "text"),
    [
        ('openjdk version "17.0.15"', Status.OK, "Java 17"),
        ('openjdk version "11.0.2"', Status.FAILED, "is Java 11, which is too old for Spark 4"),
        ('openjdk version "25"', Status.WARNING, "is Java 25, which Spark 4 is not tested with"),
        ("not a version", Status.FAILED, "does not run"),
    ],
)
def test_versions_of_java(tmp_path: Path, line: str, status: Status, text: str) -> None:
    """
    Java 17 is fine, 11 is a failure and 25 a warning; JAVA_HOME comes before the PATH.
    """
    script(tmp_path / "bin" / "java", f"echo '{line}' >&2")

    finding = check_java({"JAVA_HOME": str(tmp_path), "PATH": "/nowhere"})

    assert (finding.status, text in finding.text) == (status, True)


def test_no_java() -> None:
    """
    A machine without Java gets the command that installs one.
    """
    finding = check_java({"PATH": "/nowhere"})

    assert finding.status is Status.FAILED
    assert "pip install 'pyspark-pykafka[java]'" in finding.advice


def test_all_compiled_modules_are_known() -> None:
    """
    The doctor looks for each compiled module that pyproject.toml lists, and here finds all.
    """
    script = Path(__file__).parents[3] / "scripts" / "check_wheel.py"

    assert list(COMPILED) == runpy.run_path(str(script))["compiled_modules"]()
    assert missing_compiled_modules() == {}
    assert check_compiled({}).text == f"all {len(COMPILED)} are installed"


@pytest.mark.parametrize("module", COMPILED)
def test_a_missing_compiled_module(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The finding says which module is missing and why, what that costs, and how to get it.
    """
    monkeypatch.setitem(sys.modules, module, None)
    missing = missing_compiled_modules()

    assert list(missing) == [module]
    finding = check_compiled(missing)
    assert finding.status is Status.WARNING
    assert finding.text.startswith(f"{module.rpartition('.')[2]}: ")
    assert COMPILED[module] in finding.text
    assert "C compiler" in finding.advice


def test_an_installation_without_a_compiler() -> None:
    """
    The common reason for several missing modules is given once.
    """
    reason = "it was not compiled when the package was installed"

    text = check_compiled(dict.fromkeys(COMPILED, reason)).text

    assert text.count(reason) == 1
    assert "exactly-once" in text


def test_spark_settings_worth_changing() -> None:
    """
    Settings that this Spark version has are checked; those of a later one are not mentioned.
    """
    recommended = {"spark.python.unix.domain.socket.enabled": "TRUE"}

    assert list(check_settings({}, (4, 0))) == []
    assert [f.status for f in check_settings({}, (4, 1))] == [Status.WARNING]
    assert [f.status for f in check_settings(recommended, (4, 2))] == [Status.OK]
    (wrapper,) = check_settings(
        {"spark.sql.streaming.triggerAvailableNowWrapper.enabled": "true"}, (4, 0)
    )
    assert wrapper.status is Status.WARNING


@pytest.mark.parametrize(
    ("settings", "environment"),
    [
        ({"spark.remote": "sc://server"}, {}),
        ({"spark.connect.grpc.binding.port": "15002"}, {}),
        ({"spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin"}, {}),
        ({"spark.api.mode": "connect"}, {}),
        ({}, {"SPARK_REMOTE": "sc://server"}),
    ],
)
def test_errors_of_spark_connect(settings: dict[str, str], environment: dict[str, str]) -> None:
    """
    With Spark Connect the doctor recommends errors without the server's stack trace.
    """
    name = "spark.sql.connect.serverStacktrace.enabled"

    (finding,) = check_connect(settings, environment)
    assert (finding.status, finding.text) == (Status.WARNING, f"{name} is not set")
    assert finding.advice.startswith("set it to false: ")
    (finding,) = check_connect({**settings, name: "False"}, environment)
    assert finding.status is Status.OK
    assert list(check_connect({}, {})) == []


def test_defaults_of_spark_are_read(tmp_path: Path) -> None:
    """
    Both forms of spark-defaults.conf are read, comments are not; SPARK_CONF_DIR comes first.
    """
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("# c\nspark.a  x y\nspark.b=z\n\n")

    expected = {"spark.a": "x y", "spark.b": "z"}
    assert spark_defaults({"SPARK_HOME": str(tmp_path)}) == expected
    assert spark_defaults({"SPARK_CONF_DIR": str(tmp_path / "conf")}) == expected
    assert spark_defaults({"SPARK_CONF_DIR": str(tmp_path)}) == spark_defaults({}) == {}


def test_every_problem_has_advice() -> None:
    """
    A finding that is not OK says what to do.
    """
    findings: list[Finding] = [
        *check_machine({}, {"PATH": "/nowhere", "PYSPARK_PYTHON": "/no/python"}),
        check_spark(None),
    ]

    assert [f for f in findings if f.status is not Status.OK and not f.advice] == []
