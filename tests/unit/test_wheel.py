"""
The wheel says whether it fits one platform or all.
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
SOURCES = ("connector", "setup.py", "pyproject.toml", "README.md", "LICENSE")


@pytest.mark.soak
@pytest.mark.parametrize(
    ("compiler", "is_compiled"), [({}, True), ({"CC": "/no/compiler"}, False)], ids=["cc", "no cc"]
)
def test_tag_of_a_wheel(tmp_path: Path, compiler: dict[str, str], is_compiled: bool) -> None:
    """
    Without a compiler the build succeeds, and its wheel fits every platform.
    """
    source = tmp_path / "source"
    listed = subprocess.run(
        [
            str(shutil.which("git")),
            "ls-files",
            "connector",
            "setup.py",
            "pyproject.toml",
            "README.md",
            "LICENSE",
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    for name in listed.stdout.splitlines():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())

    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
    subprocess.run(
        [*command, tmp_path, source], check=True, timeout=250, env={**os.environ, **compiler}
    )

    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert any(Path(name).suffix in {".so", ".pyd"} for name in names) == is_compiled
    assert wheel.name.endswith("-py3-none-any.whl") != is_compiled
    assert "pyspark_pykafka/__init__.py" in names
