"""However a Python ends that started a cluster, no process and no folder is left behind."""

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

from pyspark_pykafka.testing import KafkaCluster, ServerError

if TYPE_CHECKING:
    from collections.abc import Callable

GONE_SECONDS = 30.0


def test_stop_removes_processes_and_folder() -> None:
    """After stop() no process and no folder is left."""
    before = _guards(os.getpid())
    with KafkaCluster() as kafka:
        (guard,) = _guards(os.getpid()) - before
        family = [guard, *guard.children()]
        folder = Path(guard.children()[0].cwd())
        assert folder.is_dir()
        assert kafka.answering()
    assert not folder.exists()
    assert not any(one.is_running() for one in family)


STARTS_A_CLUSTER = """
import sys, threading
from pyspark_pykafka.testing import KafkaCluster
with KafkaCluster() as kafka:
    print("ready", flush=True)
    threading.Event().wait(120)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_an_ended_parent(number: signal.Signals) -> None:
    """However the Python that started a cluster ends, its processes and folder go."""
    with _running(STARTS_A_CLUSTER) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        (guard,) = _guards(parent.pid)
        family = [guard, *guard.children()]
        folder = Path(guard.children()[0].cwd())
        # To the group, as a terminal does with Ctrl-C.
        os.killpg(parent.pid, number)
        parent.wait(timeout=GONE_SECONDS)
        _wait(lambda: not folder.exists() and not any(map(_lives, family)))


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


def test_a_forked_copy_does_not_keep_a_cluster_alive() -> None:
    """A cluster ends with the process that started it, though a fork of that holds its pipe."""
    with _running(STARTS_AND_FORKS) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        (guard,) = _guards(parent.pid)
        folder = Path(guard.children()[0].cwd())
        parent.kill()
        _wait(lambda: not folder.exists() and not _lives(guard))


def test_a_killed_guard_takes_the_broker_along() -> None:
    """On Linux a broker ends even if the process that guards it is killed."""
    before = _guards(os.getpid())
    with KafkaCluster() as kafka:
        (guard,) = _guards(os.getpid()) - before
        broker = guard.children()[0]
        folder = Path(broker.cwd())
        guard.kill()
        _wait(lambda: not _lives(broker))
        with pytest.raises(ServerError, match="start the server anew"):
            kafka.kill(1)
        assert not folder.exists()


def test_an_interrupted_fetch_leaves_an_empty_cache(tmp_path: Path) -> None:
    """A fetch whose Python is killed leaves neither a process nor half of the jars."""
    code = (
        "import sys; from pathlib import Path; from pyspark_pykafka.testing import fetch_jars; "
        "fetch_jars(['org.apache.kafka:kafka-clients:3.9.1'], Path(sys.argv[1]))"
    )
    with _running(code, str(tmp_path / "jars")) as parent:
        _wait(lambda: any(tmp_path.glob("pykafka-ivy-*")))
        (guard,) = _guards(parent.pid)
        parent.kill()
        _wait(lambda: not any(tmp_path.glob("pykafka-ivy-*")) and not _lives(guard))
    assert [one.name for one in tmp_path.iterdir()] == [".jars.lock"]


def _running(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _guards(parent: int) -> set[psutil.Process]:
    children = psutil.Process(parent).children()
    return {child for child in children if "_guard.py" in " ".join(child.cmdline())}


def _lives(process: psutil.Process) -> bool:
    """A process that has ended but was not yet waited for by anyone counts as ended."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _wait(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + GONE_SECONDS
    while not condition():
        assert time.monotonic() < end, f"not so within {GONE_SECONDS} s"
        time.sleep(0.05)
