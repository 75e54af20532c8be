"""
However the Python process that started a cluster ends, no process and no folder remains.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.support.processes import command_line

from pyspark_pykafka.testing import KafkaCluster, ServerError

if TYPE_CHECKING:
    from collections.abc import Callable

GONE_SECONDS = 30.0


# test_zookeeper.py has the same test; both servers end with the same guard.
@pytest.mark.soak
def test_stop_removes_processes_and_folder() -> None:
    """
    stop() ends all processes and removes the folder.
    """
    before = _guards(os.getpid())
    with KafkaCluster() as kafka:
        (guard,) = _guards(os.getpid()) - before
        family = [guard, *guard.children()]
        folder = Path(guard.children()[0].cwd())
        assert folder.is_dir()
        assert kafka.running_addresses()
    assert not folder.exists()
    assert not any(process.is_running() for process in family)


STARTS_A_CLUSTER = """
import sys, threading
from pyspark_pykafka.testing import KafkaCluster
with KafkaCluster() as kafka:
    print("ready", flush=True)
    threading.Event().wait(120)
"""


# To the guard, the default action of SIGTERM is no different from SIGKILL.
@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.soak), signal.SIGINT],
)
def test_nothing_outlives_the_parent(number: signal.Signals) -> None:
    """
    A killed or interrupted parent takes the cluster's processes and folder with it.
    """
    with _running(STARTS_A_CLUSTER) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        (guard,) = _guards(parent.pid)
        family = [guard, *guard.children()]
        folder = Path(guard.children()[0].cwd())
        # To the process group, like Ctrl-C in a terminal.
        os.killpg(parent.pid, number)
        parent.wait(timeout=GONE_SECONDS)
        _wait(lambda: not folder.exists() and not any(map(_is_alive, family)))


STARTS_AND_FORKS = """
import os, threading
from pyspark_pykafka.testing import KafkaCluster
kafka = KafkaCluster().start()
if os.fork() == 0:
    threading.Event().wait(120)
    os._exit(0)
print("ready", flush=True)
threading.Event().wait(120)
"""


def test_fork_does_not_keep_a_cluster_alive() -> None:
    """
    A cluster ends with the process that started it, even if a fork holds the guard's pipe.
    """
    with _running(STARTS_AND_FORKS) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        (guard,) = _guards(parent.pid)
        folder = Path(guard.children()[0].cwd())
        parent.kill()
        _wait(lambda: not folder.exists() and not _is_alive(guard))


def test_broker_dies_with_a_killed_guard() -> None:
    """
    On Linux, a broker dies with its guard process, even if that is killed.
    """
    before = _guards(os.getpid())
    with KafkaCluster() as kafka:
        (guard,) = _guards(os.getpid()) - before
        broker = guard.children()[0]
        folder = Path(broker.cwd())
        guard.kill()
        _wait(lambda: not _is_alive(broker))
        with pytest.raises(ServerError, match="start the server again"):
            kafka.kill(1)
        assert not folder.exists()


def test_interrupted_download_leaves_an_empty_cache(tmp_path: Path) -> None:
    """
    A download whose parent is killed leaves no process and no incomplete set of jars.
    """
    code = (
        "import sys; from pathlib import Path; from pyspark_pykafka.testing import fetch_jars; "
        "fetch_jars(['org.apache.kafka:kafka-clients:3.9.1'], Path(sys.argv[1]))"
    )
    with _running(code, str(tmp_path / "jars")) as parent:
        _wait(lambda: any(tmp_path.glob("pykafka-ivy-*")))
        (guard,) = _guards(parent.pid)
        parent.kill()
        _wait(lambda: not any(tmp_path.glob("pykafka-ivy-*")) and not _is_alive(guard))
    assert [path.name for path in tmp_path.iterdir()] == [".jars.lock"]


def _running(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _guards(parent: int) -> set[psutil.Process]:
    children = psutil.Process(parent).children()
    return {child for child in children if "_guard.py" in " ".join(command_line(child))}


def _is_alive(process: psutil.Process) -> bool:
    """
    Return whether a process runs; zombies do not count.
    """
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + GONE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {GONE_SECONDS} s"
        time.sleep(0.05)
