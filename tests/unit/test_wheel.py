"""
The wheel's tag says whether it fits one platform or all.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.support.built_wheel import build_wheel, copy_sources

NO_COMPILER = {"CC": "/no/compiler"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """
    Return a folder with the files of the package that the repository tracks.
    """
    return copy_sources(tmp_path / "source")


@pytest.mark.soak
@pytest.mark.parametrize(
    ("compiler", "is_compiled"), [({}, True), (NO_COMPILER, False)], ids=["cc", "no cc"]
)
def test_tag_of_a_wheel(
    source: Path, tmp_path: Path, compiler: dict[str, str], is_compiled: bool
) -> None:
    """
    Without a compiler the build succeeds, reports that the compiled modules are missing, and makes
    a wheel that fits every platform.
    """
    wheel, printed = build_wheel(source, tmp_path, compiler)

    names = zipfile.ZipFile(wheel).namelist()
    assert any(Path(name).suffix in {".so", ".pyd"} for name in names) == is_compiled
    assert wheel.name.endswith("-py3-none-any.whl") != is_compiled
    assert ("built without its compiled modules" in printed) != is_compiled
    assert "pyspark_pykafka/__init__.py" in names


@pytest.mark.soak
def test_wheel_of_a_source_distribution(source: Path, tmp_path: Path) -> None:
    """
    The source distribution has every file that the package needs where there is no compiler.
    """
    subprocess.run(
        [sys.executable, "-m", "build", "--sdist", "--outdir", tmp_path, source],
        check=True,
        timeout=250,
    )
    (distribution,) = tmp_path.glob("*.tar.gz")
    wheel, _ = build_wheel(distribution, tmp_path, NO_COMPILER)

    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    package = source / "connector"
    package_files = (
        path
        for path in package.rglob("*")
        if path.suffix in {".py", ".pyi", ".pxi", ".binpb", ".html"}
    )
    assert packed >= {str(path.relative_to(package)) for path in package_files}
    assert wheel.name.endswith("-py3-none-any.whl")
