"""
Runs the tests on each Spark version of the matrix; the versions are files in tests/matrix.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"
nox.options.reuse_venv = "yes"
nox.options.stop_on_first_error = False

VERSIONS = {
    path.stem.removeprefix("spark-"): str(path)
    for path in sorted(Path("tests/matrix").glob("spark-*.txt"))
}

PROJECT = tomllib.loads(Path("pyproject.toml").read_text())["project"]
PYTHONS = [
    name.rpartition(" ")[2]
    for name in PROJECT["classifiers"]
    if name.startswith("Programming Language :: Python :: 3.")
]
# Spark has no wheels; it runs on every Python that we name.
NEED_WHEELS = [name for name in PROJECT["dependencies"] if not name.startswith("pyspark")]


@nox.session
@nox.parametrize("python_version", PYTHONS, ids=PYTHONS)
def installs(session: nox.Session, python_version: str) -> None:
    """
    Find a wheel of each dependency for a Python that we name, without installing it.
    """
    target = ["--target", session.create_tmp(), "--python-version", python_version]
    session.install("--dry-run", "--ignore-installed", "--only-binary=:all:", *target, *NEED_WHEELS)


@nox.session
@nox.parametrize("spark", list(VERSIONS), ids=list(VERSIONS))
def tests(session: nox.Session, spark: str) -> None:
    """
    Run pytest on one Spark version; what follows `--` goes to pytest.
    """
    session.install("--editable", ".[test]", "--constraint", VERSIONS[spark])
    python = str(Path(session.bin) / "python")
    session.run("pytest", "--require-broker", *session.posargs, env={"PYSPARK_PYTHON": python})
