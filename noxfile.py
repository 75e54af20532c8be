"""
Runs the tests on each Spark version of the matrix; the versions are files in tests/matrix.
"""

from __future__ import annotations

from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"
nox.options.reuse_venv = "yes"
nox.options.stop_on_first_error = False

VERSIONS = {
    path.stem.removeprefix("spark-"): str(path)
    for path in sorted(Path("tests/matrix").glob("spark-*.txt"))
}


@nox.session
@nox.parametrize("spark", list(VERSIONS), ids=list(VERSIONS))
def tests(session: nox.Session, spark: str) -> None:
    """
    Run pytest on one Spark version; what follows `--` goes to pytest.
    """
    session.install("--editable", ".[test]", "--constraint", VERSIONS[spark])
    python = str(Path(session.bin) / "python")
    session.run("pytest", "--require-broker", *session.posargs, env={"PYSPARK_PYTHON": python})
