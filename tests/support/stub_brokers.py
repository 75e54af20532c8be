"""
Stub brokers in a process of their own, with responses that a test defines.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from pyspark import cloudpickle
from tests.support.stub_behaviour import (
    Behaviour,
    FetchAnswer,
    StubGroup,
    StubTransaction,
    record_batch,
)
from tests.support.stub_process import NUMBER, read_value, write_value

from pyspark_pykafka.testing.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

__all__ = [
    "Behaviour",
    "FetchAnswer",
    "StubCluster",
    "StubGroup",
    "StubTransaction",
    "record_batch",
]

_ROOT = Path(__file__).parents[2]
_NEW_PROCESS = 0


class _Forks:
    """
    Starts and kills processes of stub clusters, through a process that forks them. It ends when
    this process ends, and so do they.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channel, other_end = socket.socketpair()
        with other_end:
            number = other_end.fileno()
            command = [sys.executable, "-m", "tests.support.stub_process", str(number)]
            self._process = subprocess.Popen(
                command, pass_fds=[number], cwd=_ROOT, start_new_session=True
            )

    def start(self) -> _Process:
        commands_out, commands_in = os.pipe()
        replies_out, replies_in = os.pipe()
        their_ends = (commands_out, replies_in)
        try:
            number = self._request(_NEW_PROCESS, their_ends)
        finally:
            for pipe in their_ends:
                os.close(pipe)
        return _Process(self, number, os.fdopen(commands_in, "wb"), os.fdopen(replies_out, "rb"))

    def kill(self, number: int) -> int:
        """
        Kill a process if it still runs, and return its exit code.
        """
        return self._request(number)

    def _request(self, number: int, pipes: Sequence[int] = ()) -> int:
        with self._lock:
            socket.send_fds(self._channel, [NUMBER.pack(number)], pipes)
            reply: tuple[int] = NUMBER.unpack(self._channel.recv(NUMBER.size))
        return reply[0]


@cache
def _forks(_process: int) -> _Forks:
    """
    Return the forks of this process, whose id is the argument: a fork of it has its own.
    """
    return _Forks()


@dataclass
class _Process:
    """
    The process of a stub cluster, and the pipes to and from it.
    """

    forks: _Forks
    number: int
    commands: BinaryIO
    replies: BinaryIO
    exit_code: int | None = None

    def end(self) -> int:
        """
        Kill the process if it still runs, and return its exit code.
        """
        if self.exit_code is None:
            self.exit_code = self.forks.kill(self.number)
            self.replies.close()
            self.commands.close()
        return self.exit_code


class StubCluster:
    """
    Runs a behaviour; its class may be defined in a test module, and is pickled by value.
    """

    def __init__(self, behaviour: Behaviour) -> None:
        names = {name for name in dir(behaviour) if callable(getattr(behaviour, name))}
        # A method that overrides nothing is never called, so the test would prove nothing.
        unused = {name for name in names - set(dir(Behaviour)) if not name.startswith("_")}
        assert not unused, f"{type(behaviour).__name__} overrides no method of a stub: {unused}"
        self._behaviour = behaviour
        self.ports: list[int] = []

    @property
    def bootstrap(self) -> str:
        """
        The address of the first broker.
        """
        return f"127.0.0.1:{self.ports[0]}"

    @property
    def all_brokers(self) -> str:
        """
        The addresses of all brokers.
        """
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def stats(self) -> dict[str, Any]:
        """
        Return the numbers of ``connections``, ``closed`` ones, and ``requests`` by API key.
        """
        return dict(self._command("stats", None))

    def set(self, **attributes: Any) -> None:
        """
        Set attributes of the behaviour; they are in effect when this returns.
        """
        self._command("set", attributes)

    def get(self, attribute: str) -> Any:
        """
        Return an attribute of the behaviour.
        """
        return self._command("get", attribute)

    def __enter__(self) -> Self:
        self._process = _forks(os.getpid()).start()
        self._process.commands.write(_pickled(self._behaviour))
        # The ports come from this process, which hands out no port twice.
        write_value(free_ports(self._behaviour.brokers), self._process.commands)
        self.ports = self._receive()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.end()

    def _receive(self) -> Any:
        try:
            return read_value(self._process.replies)
        except EOFError:
            msg = f"the stub brokers ended with exit code {self._process.end()}"
            raise RuntimeError(msg) from None

    def _command(self, name: str, value: Any) -> Any:
        write_value((name, value), self._process.commands)
        return self._receive()


def _pickled(behaviour: Behaviour) -> bytes:
    """
    Return a pickled behaviour preceded by its length; a class that a test defines goes by value.
    """
    module = sys.modules[type(behaviour).__module__]
    by_value = type(behaviour) is not Behaviour
    if by_value:
        cloudpickle.register_pickle_by_value(module)
    try:
        data = cloudpickle.dumps(behaviour)
    finally:
        if by_value:
            cloudpickle.unregister_pickle_by_value(module)
    return len(data).to_bytes(4, "big") + bytes(data)
