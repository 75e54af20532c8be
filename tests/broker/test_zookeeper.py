"""
A ZooKeeper server starts, survives kills, pauses and restarts, and cleans up.
"""

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


def test_nodes_are_stored(zookeeper: ZooKeeper) -> None:
    """
    A node created by one client is read by another.
    """
    with connected(zookeeper) as client:
        client.create("/kept/here", b"value", makepath=True)
    with connected(zookeeper) as client:
        assert client.get("/kept/here")[0] == b"value"


@pytest.mark.parametrize("end", [ZooKeeper.kill, ZooKeeper.pause, lambda _: None])
def test_data_survives_a_restart(zookeeper: ZooKeeper, end: Callable[[ZooKeeper], None]) -> None:
    """
    A restart keeps the address and the data of a killed, paused or running server.
    """
    with connected(zookeeper) as client:
        path = client.create("/restarted-", b"value", sequence=True)
    before = zookeeper.hosts
    end(zookeeper)
    zookeeper.restart()
    assert zookeeper.hosts == before
    with connected(zookeeper) as client:
        assert client.get(path)[0] == b"value"


def test_paused_server_accepts_no_session(zookeeper: ZooKeeper) -> None:
    """
    A paused server accepts no session; a resumed one does.
    """
    zookeeper.pause()
    client = KazooClient(zookeeper.hosts, timeout=1)
    with pytest.raises(KazooTimeoutError):
        client.start(timeout=1)
    zookeeper.resume()
    with connected(zookeeper) as client:
        assert client.exists("/zookeeper")


def test_stop_removes_processes_and_folder() -> None:
    """
    stop() ends the process and removes the folder; later calls raise an error.
    """
    before = set(psutil.Process(os.getpid()).children(recursive=True))
    with ZooKeeper() as zookeeper:
        family = set(psutil.Process(os.getpid()).children(recursive=True)) - before
        (folder,) = {Path(process.cwd()) for process in family if process.name() == "java"}
    assert not folder.exists()
    assert not any(process.is_running() for process in family)
    with pytest.raises(ServerError, match="is not running"):
        zookeeper.kill()


def test_taken_port_raises(zookeeper: ZooKeeper) -> None:
    """
    A port in use raises an error, even if another ZooKeeper responds there.
    """
    port = int(zookeeper.hosts.rpartition(":")[2])
    with pytest.raises(ServerError, match="Address already in use"):
        ZooKeeper(port=port).start()
