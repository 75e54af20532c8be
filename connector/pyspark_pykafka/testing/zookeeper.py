"""A real ZooKeeper on this machine, from the jars that pyspark ships."""

from __future__ import annotations

import signal
import socket
from typing import TYPE_CHECKING

from .jars import pyspark_jars
from .java import find_java
from .ports import free_ports
from .processes import Processes, ServerError, retry_on_taken_port

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

START_SECONDS = 60.0
STOP_SECONDS = 20.0
ASK_SECONDS = 5.0
NAME = "zookeeper"


class ZooKeeper:
    """
    One ZooKeeper server on a free loopback port, gone with its data at `stop()`.

    ```python
    with ZooKeeper() as zookeeper:
        client = KazooClient(zookeeper.hosts)
    ```
    """

    def __init__(self, *, port: int | None = None) -> None:
        """Describe a server, on a free port unless one is given; `start()` or `with` starts it."""
        self._wanted_port = port
        self._port = 0
        self._processes: Processes | None = None
        self._answering = False

    @property
    def hosts(self) -> str:
        """The server's address as kazoo wants it: '127.0.0.1:port'."""
        if not self._port:
            msg = "This ZooKeeper was not started; call start(), or use it in a with statement."
            raise ServerError(msg)
        return f"127.0.0.1:{self._port}"

    def start(self) -> ZooKeeper:
        """Start the server and return once it answers a client."""
        if self._processes is not None:
            msg = f"This ZooKeeper already runs at {self.hosts}; stop it first."
            raise ServerError(msg)
        return self._start_once() if self._wanted_port else retry_on_taken_port(self._start_once)

    def stop(self) -> None:
        """End the server and remove its data."""
        if self._processes is not None:
            processes, self._processes = self._processes, None
            processes.close()

    def kill(self) -> None:
        """Kill the server as a power cut would; the data stays for `restart()`."""
        self._answering = False
        self._group.end(NAME, signal.SIGKILL, STOP_SECONDS)

    def restart(self) -> None:
        """Start the server again on the same port and data; if it answers, shut it down first."""
        ending = signal.SIGTERM if self._answering else signal.SIGKILL
        self._group.end(NAME, ending, STOP_SECONDS)
        self._launch()

    def pause(self) -> None:
        """Freeze the server: connections stay open and nothing is answered."""
        self._group.send(NAME, signal.SIGSTOP)
        self._answering = False

    def resume(self) -> None:
        """Let a paused server go on, and return once it answers."""
        self._group.send(NAME, signal.SIGCONT)
        self._wait_ready()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def _group(self) -> Processes:
        if self._processes is None:
            msg = "This ZooKeeper does not run; call start(), or use it in a with statement."
            raise ServerError(msg)
        return self._processes

    def _start_once(self) -> ZooKeeper:
        self._port = self._wanted_port or free_ports(1)[0]
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
            # Short ticks allow sessions of a second, so that tests can let one expire.
            "tickTime=500\nmaxClientCnxns=0\nadmin.enableServer=false\n"
            "4lw.commands.whitelist=conf,srvr\n"
        )
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        self._group.start(NAME, [*_java(), main, str(settings)])
        self._wait_ready()

    def _wait_ready(self) -> None:
        self._group.wait_ready(NAME, self._missing, START_SECONDS)
        self._answering = True

    def _missing(self) -> str | None:
        """Ask with ZooKeeper's own word for it, which opens no session and needs no client."""
        try:
            with socket.create_connection(("127.0.0.1", self._port), ASK_SECONDS) as asking:
                asking.sendall(b"conf")
                answer = asking.makefile("rb").read()
        except OSError as error:
            return f"no answer at {self.hosts} ({error})."
        # The folder tells our server from another one that has taken the port.
        if str(self._group.folder) not in answer.decode():
            return f"{self.hosts} answers, but does not serve yet: {answer!r:.200}"
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
