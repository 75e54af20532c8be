"""
The servers and drivers of a run: three brokers behind proxies, ZooKeeper, two drivers, a small
disk, a clock.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.soak.drivers import Driver
from tests.soak.plan import MORTAL, STEADY
from tests.support.proxied import ProxiedCluster

from pyspark_pykafka.testing import ZooKeeper, find_java

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

#: The broker whose disk can be filled.
SMALL_DISK_BROKER = 3
SMALL_DISK_MEGABYTES = 512
_COMMAND_SECONDS = 30
_CLOCK = Path(__file__).with_name("clock")

CONFIG = {
    # The transactions of dead drivers are aborted soon after they time out.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 2_000,
    "offsets.topic.num.partitions": 3,
}


class Clock:
    """
    The wall clock of the Python processes of drivers and executors.
    """

    def __init__(self, folder: Path) -> None:
        self._offset = folder / "clock-offset"
        self._python = folder / "python"
        self.shift(0)
        self._python.write_text(
            "#!/bin/sh\n"
            f"export SOAK_CLOCK_OFFSET={self._offset} PYTHONPATH={_CLOCK}:$PYTHONPATH\n"
            f'exec {sys.executable} "$@"\n'
        )
        self._python.chmod(0o755)

    @property
    def environment(self) -> Mapping[str, str]:
        """
        The environment of a driver whose Python processes have this clock.
        """
        return {"PYSPARK_PYTHON": str(self._python)}

    def shift(self, seconds: int) -> None:
        """
        Set the clock ahead by this number of seconds, or back if it is negative.
        """
        hidden = self._offset.with_suffix(".new")
        hidden.write_text(f"{seconds}\n")
        hidden.rename(self._offset)


class SmallDisk:
    """
    A small file system in memory under the data of one broker.
    """

    def __init__(self, cluster: ProxiedCluster) -> None:
        self._kafka = cluster.kafka
        self._data = cluster.kafka.data_folder(SMALL_DISK_BROKER)
        self._ballast = self._data / "ballast"

    @staticmethod
    def is_possible(folder: Path) -> bool:
        """
        Return whether this process may mount a file system.
        """
        if not shutil.which("mount"):
            return False
        probe = folder / "probe"
        probe.mkdir()
        mounted = _call("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(probe)) == 0
        return mounted and _call("umount", str(probe)) == 0

    def mount(self) -> None:
        """
        Mount the file system, and move the broker's data to it.
        """
        self._kafka.stop(SMALL_DISK_BROKER)
        aside = self._data.with_name("aside")
        self._data.rename(aside)
        self._data.mkdir()
        size = f"size={SMALL_DISK_MEGABYTES}m"
        assert _call("mount", "-t", "tmpfs", "-o", size, "tmpfs", str(self._data)) == 0
        shutil.copytree(aside, self._data, dirs_exist_ok=True)
        shutil.rmtree(aside)
        self._kafka.restart(SMALL_DISK_BROKER)

    def unmount(self) -> None:
        """
        Kill the broker, and free the memory.
        """
        self._kafka.kill(SMALL_DISK_BROKER)
        _call("umount", "--lazy", str(self._data))

    def fill(self) -> None:
        """
        Fill the disk until no byte is free.
        """
        block = b"\0" * (1 << 20)
        with self._ballast.open("wb", buffering=0) as file:
            try:
                while file.write(block):
                    pass
            except OSError:
                return

    def free(self) -> None:
        """
        Free the space again.
        """
        self._ballast.unlink(missing_ok=True)


def _call(*command: str) -> int:
    return subprocess.run(
        command, capture_output=True, timeout=_COMMAND_SECONDS, check=False
    ).returncode


@dataclass
class Rig:
    """
    All servers and drivers of a run.
    """

    folder: Path
    cluster: ProxiedCluster
    zookeeper: ZooKeeper
    clock: Clock
    drivers: dict[str, Driver] = field(default_factory=dict)
    disk: SmallDisk | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def start(cls, folder: Path) -> Rig:
        """
        Start everything.
        """
        os.environ["JAVA_HOME"] = str(find_java().parent.parent)
        os.environ["PYSPARK_PYTHON"] = sys.executable
        rig = cls(folder, ProxiedCluster(3, CONFIG), ZooKeeper(), Clock(folder))
        try:
            rig._start()
        except BaseException:
            rig.close()
            raise
        return rig

    def _start(self) -> None:
        self._stack.enter_context(self.cluster)
        self._stack.enter_context(self.zookeeper)
        if SmallDisk.is_possible(self.folder):
            self.disk = SmallDisk(self.cluster)
            self._stack.callback(self.disk.unmount)
            self.disk.mount()
        for name in (STEADY, MORTAL):
            driver = Driver(name, self.folder / name, self.clock.environment)
            self.drivers[name] = driver
            self._stack.callback(driver.kill)
            driver.start()

    @property
    def mortal(self) -> Driver:
        """
        The driver that may be killed.
        """
        return self.drivers[MORTAL]

    def heal(self) -> None:
        """
        End all faults that a nemesis may have left behind.
        """
        for proxy in self.cluster.proxies.values():
            proxy.delay, proxy.rate = 0.0, 0
            proxy.heal()
        self.clock.shift(0)
        if self.disk is not None:
            self.disk.free()
        kafka = self.cluster.kafka
        for node in set(self.cluster.proxies) - kafka.running_ids():
            kafka.restart(node)
        for driver in self.drivers.values():
            driver.resume()
            if not driver.is_alive:
                driver.start()

    def close(self) -> None:
        """
        Stop everything.
        """
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
