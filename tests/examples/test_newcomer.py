"""
A newcomer follows the README in a new virtual environment, with two terminals and a Python prompt.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest
from tests.support.built_wheel import ROOT, copy_sources
from tests.support.page_blocks import blocks_of

from pyspark_pykafka.testing import find_java
from pyspark_pykafka.testing.ports import free_ports
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The time in seconds in which the README promises a stream with visible lag, installation
#: included.
TEN_MINUTES = 600
PYTHONS = [
    name.rpartition(" ")[2]
    for name in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    if name.startswith("Programming Language :: Python :: 3.")
]
READY = "Ctrl-C stops it"
STREAM_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Newcomer:
    """
    A person with a new virtual environment, an empty folder, and a free port for the broker.
    """

    folder: Path
    environment: dict[str, str]
    port: int

    def text(self, block: str) -> str:
        """
        Return a block with the free port in place of the README's.
        """
        return block.replace("9092", str(self.port))

    def run(self, block: str) -> str:
        """
        Run a block in a terminal, and return what it prints; a failed command fails the test.
        """
        with self._terminal(block) as terminal:
            output, _ = terminal.communicate(timeout=STREAM_SECONDS)
        assert terminal.returncode == 0, output
        return output

    def lag(self, block: str) -> str:
        """
        Run the block that shows the lag, which fails as long as no micro-batch is recorded.
        """
        with self._terminal(block) as terminal:
            output, _ = terminal.communicate(timeout=STREAM_SECONDS)
        return output

    @contextmanager
    def broker(self, block: str) -> Iterator[None]:
        """
        Run the block that starts the broker, which is ready when this yields.
        """
        with self._terminal(block) as terminal:
            try:
                greeting = ""
                while READY not in greeting and (line := _output(terminal).readline()):
                    greeting += line
                assert READY in greeting, greeting
                yield
            finally:
                terminal.terminate()
                terminal.communicate(timeout=STREAM_SECONDS)

    @contextmanager
    def python(self) -> Iterator[IO[str]]:
        """
        Yield the prompt of a Python process, which must end without an error.
        """
        with self._started("python", "-i", "-q", stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            try:
                yield process.stdin
            finally:
                output, _ = process.communicate("query.stop()\nexit()\n", STREAM_SECONDS)
            assert process.returncode == 0, output

    def _terminal(self, block: str) -> subprocess.Popen[str]:
        # With exec, the shell of a single command becomes that command, and gets its signals.
        lines = self.text(block).rstrip().splitlines()
        return self._started("bash", "-e", "-c", "\n".join([*lines[:-1], f"exec {lines[-1]}"]))

    def _started(self, *command: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
            env=self.environment,
        )


def _output(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


def interpreter(version: str) -> str:
    """
    Return an installed Python of a version, such as `3.12`; fail if there is none.
    """
    pyenv = Path.home().glob(f".pyenv/versions/{version}.*/bin/python")
    for candidate in (shutil.which(f"python{version}"), *pyenv):
        # A version that pyenv has but does not use has a program on the PATH that fails.
        if candidate and not subprocess.run([candidate, "-c", ""], check=False).returncode:
            return str(candidate)
    pytest.fail(f"Python {version}, which pyproject.toml names, is not installed")


@pytest.fixture(params=PYTHONS)
def newcomer(request: pytest.FixtureRequest, tmp_path: Path) -> Newcomer:
    """
    Return a newcomer with one of the Pythons that pyproject.toml names, who has installed this
    checkout and its dependencies.
    """
    environment = tmp_path / "environment"
    subprocess.run([interpreter(request.param), "-m", "venv", str(environment)], check=True)
    source = copy_sources(tmp_path / "source")
    install = [str(environment / "bin" / "pip"), "install", "--quiet", str(source)]
    subprocess.run(install, check=True, timeout=TEN_MINUTES)
    folder = tmp_path / "work"
    folder.mkdir()
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PYSPARK", "PYKAFKA", "SPARK", "VIRTUAL_ENV"))
    }
    activated = {
        "PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "JAVA_HOME": os.environ.get("JAVA_HOME") or str(find_java().parents[1]),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    (port,) = free_ports(1)
    return Newcomer(folder, kept | activated, port)


@pytest.mark.soak
@pytest.mark.timeout(TEN_MINUTES)
def test_from_nothing_to_an_exactly_once_stream(newcomer: Newcomer) -> None:
    """
    The blocks of the README, run as they stand after the installation, copy each record once and
    show that the lag is zero; with the installation this takes less than ten minutes.
    """
    broker, topics, read, write, look = (block.text for block in blocks_of("README.md"))
    address = next(line for line in topics.splitlines() if line.startswith("export "))

    with newcomer.broker(broker):
        newcomer.run(topics)
        with newcomer.python() as prompt:
            prompt.write(newcomer.text(f"{read}\n{write}\n"))
            prompt.flush()
            shown = ""

            def unread() -> str | None:
                nonlocal shown
                shown = newcomer.lag(f"{address}\n{look}")
                return None if re.search(r"^Total lag: 0$", shown, re.MULTILINE) else shown

            wait_until(unread, STREAM_SECONDS)

    assert sorted(re.findall(r"[A-Z]{3} to [A-Z]{3}", shown)) == [
        *("EWR to IAH", "JFK to MIA", "LGA to IAH"),
    ]
