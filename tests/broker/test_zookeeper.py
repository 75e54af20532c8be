"""A ZooKeeper of our own starts, takes what tests do to it, and leaves nothing behind."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from pyspark_pykafka.testing import ServerError, ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def connected(zookeeper: ZooKeeper) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper.hosts)
    client.start(timeout=20)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def test_it_keeps_what_is_written(zookeeper: ZooKeeper) -> None:
    """A node that one client makes, another one reads."""
    with connected(zookeeper) as client:
        client.create("/kept/here", b"value", makepath=True)
    with connected(zookeeper) as client:
        assert client.get("/kept/here")[0] == b"value"


@pytest.mark.parametrize("end", [ZooKeeper.kill, ZooKeeper.pause, lambda _: None])
def test_data_survives_a_restart(zookeeper: ZooKeeper, end: Callable[[ZooKeeper], None]) -> None:
    """Killed, paused or running before it, a restart keeps the address and the data."""
    with connected(zookeeper) as client:
        path = client.create("/restarted-", b"value", sequence=True)
    before = zookeeper.hosts
    end(zookeeper)
    zookeeper.restart()
    assert zookeeper.hosts == before
    with connected(zookeeper) as client:
        assert client.get(path)[0] == b"value"


def test_while_paused_nobody_can_connect(zookeeper: ZooKeeper) -> None:
    """A paused server answers no one, and a resumed one everyone."""
    zookeeper.pause()
    client = KazooClient(zookeeper.hosts, timeout=1)
    with pytest.raises(KazooTimeoutError):
        client.start(timeout=1)
    zookeeper.resume()
    with connected(zookeeper) as client:
        assert client.exists("/zookeeper")


def test_stop_removes_processes_and_folder() -> None:
    """After stop() no process and no folder is left, and the verbs say so."""
    before = set(psutil.Process(os.getpid()).children(recursive=True))
    with ZooKeeper() as zookeeper:
        family = set(psutil.Process(os.getpid()).children(recursive=True)) - before
        (folder,) = {Path(one.cwd()) for one in family if one.name() == "java"}
    assert not folder.exists()
    assert not any(one.is_running() for one in family)
    with pytest.raises(ServerError, match="does not run"):
        zookeeper.kill()


def test_a_taken_port_is_told(zookeeper: ZooKeeper) -> None:
    """A port that somebody has is an error that shows why, though a ZooKeeper answers there."""
    port = int(zookeeper.hosts.rpartition(":")[2])
    with pytest.raises(ServerError, match="Address already in use"):
        ZooKeeper(port=port).start()
