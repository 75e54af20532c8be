"""
The wheel's tag says whether it fits one platform or all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What a checkout has: no compiled modules, and no C files that Cython has written.
SOURCES = ("connector", "setup.py", "pyproject.toml", "README.md", "LICENSE")
NO_COMPILER = {"CC": "/no/compiler"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """
    Return a folder with the files of the package that the repository tracks.
    """
    listed = subprocess.run(
        [str(shutil.which("git")), "ls-files", *SOURCES],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    folder = tmp_path / "source"
    for name in listed.stdout.splitlines():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


def build_wheel(source: Path, folder: Path, compiler: dict[str, str]) -> tuple[Path, str]:
    """
    Return the wheel that pip builds, and what pip printed.
    """
    command = [sys.executable, "-m", "pip", "wheel", "--verbose", "--no-deps", "--wheel-dir"]
    result = subprocess.run(
        [*command, folder, source],
        check=True,
        timeout=250,
        env={**os.environ, **compiler},
        capture_output=True,
        text=True,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel, result.stdout + result.stderr


@pytest.mark.soak
@pytest.mark.parametrize(
    ("compiler", "is_compiled"), [({}, True), (NO_COMPILER, False)], ids=["cc", "no cc"]
)
def test_tag_of_a_wheel(
    source: Path, tmp_path: Path, compiler: dict[str, str], is_compiled: bool
) -> None:
    """
    Without a compiler the build succeeds and says so, and its wheel fits every platform.
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
        path for path in package.rglob("*") if path.suffix in {".py", ".pyi", ".pxi", ".html"}
    )
    assert packed >= {str(path.relative_to(package)) for path in package_files}
    assert wheel.name.endswith("-py3-none-any.whl")
