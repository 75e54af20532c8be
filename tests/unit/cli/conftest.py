"""
Fixtures for commands: a simulated cluster, and isolation from the configuration of the user who
runs the tests.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.support.served_kafka import SimulatedAccess

from pyspark_pykafka.cli.client_config import FILE_VARIABLE, PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """
    The path of the configuration file that commands read; it does not exist yet.
    """
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)
    monkeypatch.delenv(FILE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "pykafka" / "config.toml"


@pytest.fixture(scope="module")
def cluster() -> Iterator[SimulatedAccess]:
    """
    A simulated cluster of one broker.
    """
    with SimulatedAccess() as access:
        yield access
