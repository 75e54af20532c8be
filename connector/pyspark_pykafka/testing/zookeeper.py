"""
A real ZooKeeper server on this machine, from the jars that pyspark ships.
"""

from __future__ import annotations

import signal
import socket

from .jars import pyspark_jars
from .java import find_java
from .lifecycle import Startable
from .ports import free_ports
from .processes import Processes, ServerError, retry_on_taken_port

START_SECONDS = 60.0
STOP_SECONDS = 20.0
REQUEST_SECONDS = 5.0
NAME = "zookeeper"


class ZooKeeper(Startable):
    """
    One ZooKeeper server on a free loopback port; `stop()` removes it with its data.

    ```python
    with ZooKeeper() as zookeeper:
        client = KazooClient(zookeeper.hosts)
    ```
    """

    def __init__(self, *, port: int | None = None) -> None:
        """
        Describe a server on `port`, or on a free port; `start()` or `with` starts it.
        """
        self._requested_port = port
        self._port = 0
        self._processes: Processes | None = None
        self._is_running = False

    @property
    def hosts(self) -> str:
        """
        The server's address in kazoo's form: '127.0.0.1:port'.
        """
        if not self._port:
            msg = "This ZooKeeper was not started; call start(), or use it in a with statement."
            raise ServerError(msg)
        return f"127.0.0.1:{self._port}"

    def start(self) -> ZooKeeper:
        """
        Start the server and return once it is ready.
        """
        if self._processes is not None:
            msg = f"This ZooKeeper is already running at {self.hosts}; stop it first."
            raise ServerError(msg)
        return self._start_once() if self._requested_port else retry_on_taken_port(self._start_once)

    def stop(self) -> None:
        """
        Stop the server and remove its data.
        """
        if self._processes is not None:
            processes, self._processes = self._processes, None
            processes.close()

    def kill(self) -> None:
        """
        Kill the server with SIGKILL; the data is kept for `restart()`.
        """
        self._is_running = False
        self._group.end(NAME, signal.SIGKILL, STOP_SECONDS)

    def restart(self) -> None:
        """
        Start the server again with the same port and data; shut it down first if it runs.
        """
        stop_signal = signal.SIGTERM if self._is_running else signal.SIGKILL
        self._group.end(NAME, stop_signal, STOP_SECONDS)
        self._launch()

    def pause(self) -> None:
        """
        Suspend the server: connections stay open, requests get no response.
        """
        self._group.send(NAME, signal.SIGSTOP)
        self._is_running = False

    def resume(self) -> None:
        """
        Resume a paused server, and return once it is ready.
        """
        self._group.send(NAME, signal.SIGCONT)
        self._wait_ready()

    @property
    def _group(self) -> Processes:
        if self._processes is None:
            msg = "This ZooKeeper is not running; call start(), or use it in a with statement."
            raise ServerError(msg)
        return self._processes

    def _start_once(self) -> ZooKeeper:
        self._port = self._requested_port or free_ports(1)[0]
        self._processes = Processes(NAME)
        try:
            self._launch()
        except BaseException:
            self.stop()
            raise
        return self

    def _launch(self) -> None:
        folder = self._group.folder
        settings = folder / "zoo.cfg"
        settings.write_text(
            f"dataDir={folder}/data\nclientPort={self._port}\nclientPortAddress=127.0.0.1\n"
            # Short ticks allow sessions of one second, so that tests can let a session expire.
            "tickTime=500\nmaxClientCnxns=0\nadmin.enableServer=false\n"
            "4lw.commands.whitelist=conf,srvr\n"
        )
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        self._group.start(NAME, [*_java(), main, str(settings)])
        self._wait_ready()

    def _wait_ready(self) -> None:
        self._group.wait_ready(NAME, self._unready_reason, START_SECONDS)
        self._is_running = True

    def _unready_reason(self) -> str | None:
        """
        Return why the server is not ready, or None if it answers the command `conf`.
        """
        try:
            with socket.create_connection(("127.0.0.1", self._port), REQUEST_SECONDS) as connection:
                connection.sendall(b"conf")
                response = connection.makefile("rb").read()
        except OSError as error:
            return f"no response at {self.hosts} ({error})."
        # Our folder in the response shows that no other server has taken the port.
        if str(self._group.folder) not in response.decode():
            return f"{self.hosts} responds, but is not ready yet: {response!r:.200}"
        return None


def _java() -> list[str]:
    return [
        str(find_java()),
        "-Xmx128m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Dlog4j2.level=INFO",
        "-cp",
        f"{pyspark_jars()}/*",
    ]
