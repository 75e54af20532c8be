"""
The workflows match pyproject.toml and the Makefile. No test can run a workflow itself.
"""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PYTHONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PYPROJECT["project"]["classifiers"]))
TARGETS = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
#: The targets that check nothing, or what a person looks at.
NO_CHECKS = {"help", "clean", "demo", "fix", "proof", "screenshots", "bench", "bench-quick"}
PLATFORMS = {"linux-x86_64", "linux-aarch64", "macos-x86_64", "macos-arm64", "windows-amd64"}


def workflow(name: str) -> dict[str, Any]:
    """
    Return a workflow; YAML takes its key ``on`` for a truth value.
    """
    text = (ROOT / ".github" / "workflows" / f"{name}.yml").read_text()
    document: dict[str, Any] = yaml.safe_load(text)
    return document


def commands(job: dict[str, Any]) -> str:
    """
    Return the shell commands of a job, one per line.
    """
    return "\n".join(step["run"] for step in job["steps"] if "run" in step)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_job_can_start(path: Path) -> None:
    """
    Each job has a machine and steps; each step runs a command or a released action, not both.
    """
    jobs = workflow(path.stem)["jobs"]

    assert jobs
    for job in jobs.values():
        assert job["name"]
        assert job["runs-on"]
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step), step
            assert re.fullmatch(
                r"[\w-]+/[\w-]+@(release/)?v\d+", step.get("uses", "actions/x@v1")
            ), step


def test_wheels_of_each_platform() -> None:
    """
    Wheels are built on a machine of each platform: Linux and macOS on both processors, and Windows.
    """
    job = workflow("wheels")["jobs"]["wheels"]
    runners = {entry["platform"]: entry["runner"] for entry in job["strategy"]["matrix"]["include"]}

    assert set(runners) == PLATFORMS
    assert len(set(runners.values())) == len(PLATFORMS)
    assert "python -m cibuildwheel" in commands(job)


def test_wheels_of_each_python() -> None:
    """
    A wheel is built for each Python of the classifiers, and no other.
    """
    assert PYPROJECT["tool"]["cibuildwheel"]["build"] == [
        f"cp{version.replace('.', '')}-*" for version in PYTHONS
    ]


def test_a_wheel_is_checked_by_its_compiled_modules() -> None:
    """
    Each wheel is installed, and all compiled modules of pyproject.toml are imported from it.
    """
    sources = {path.stem for path in (ROOT / "connector").rglob("*.pyx")}
    script = PYPROJECT["tool"]["cibuildwheel"]["test-command"].rpartition("{project}/")[2]

    compiled = runpy.run_path(str(ROOT / script))["compiled_modules"]()
    assert {name.rpartition(".")[2] for name in compiled} == sources


def test_the_source_is_installed_without_a_compiler() -> None:
    """
    The workflow installs the sdist without a compiler, and expects the line that setup.py prints.
    """
    job = workflow("wheels")["jobs"]["sdist"]
    (expected,) = re.findall(r'grep "(.+)" install.log', commands(job))
    (install,) = [step for step in job["steps"] if "pip install --verbose" in step.get("run", "")]

    assert expected in (ROOT / "setup.py").read_text()
    assert install["env"] == {"CC": "false"}


def nightly_targets() -> list[str]:
    """
    Return the targets that the scheduled workflow makes, with their settings.
    """
    targets: list[str] = workflow("nightly")["jobs"]["slow"]["strategy"]["matrix"]["target"]
    return targets


def test_every_check_is_run_by_a_machine() -> None:
    """
    Each target of the Makefile that checks something is made before a change is merged, or by the
    workflow that runs each night.
    """
    before_a_merge = re.findall(r"^make ([a-z-]+)", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    at_night = [target.split()[0] for target in nightly_targets()]

    assert {*before_a_merge, *at_night} | NO_CHECKS == TARGETS
    assert not {*before_a_merge, *at_night} & NO_CHECKS
    assert commands(workflow("nightly")["jobs"]["slow"]) == "make ${{ matrix.target }}"
    # PyYAML reads the key "on" as true.
    document: dict[Any, Any] = workflow("nightly")
    assert document[True]["schedule"]


def test_settings_of_targets_exist() -> None:
    """
    The Makefile has each variable that the scheduled workflow sets.
    """
    variables = {
        word.partition("=")[0] for target in nightly_targets() for word in target.split()[1:]
    }

    assert variables
    assert variables <= set(
        re.findall(r"^(\w+) \?=", (ROOT / "Makefile").read_text(), re.MULTILINE)
    )


def test_each_python_reads_and_writes() -> None:
    """
    The smoke tests run on each Python of the classifiers.
    """
    job = workflow("nightly")["jobs"]["pythons"]

    assert job["strategy"]["matrix"]["python"] == PYTHONS
    assert "make test PYTHON=python ARGS='-m smoke'" in commands(job)
