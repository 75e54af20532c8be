"""
The processes of stub clusters: in each, one event loop serves all brokers of a cluster.

Such a process reads a behaviour, ports, and then commands from a pipe, as pickles, and writes the
replies to another pipe. It is a fork of a process that has imported everything before, since the
imports take longer than most tests.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import signal
import socket
import struct
import sys
import traceback
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

# Imported for the forks: pickles of classes need it.
from pyspark import cloudpickle  # noqa: F401
from tests.support.listening import listen
from tests.support.stub_behaviour import API_VERSIONS, has_flexible_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.stub_behaviour import Behaviour

_HEADER = struct.Struct(">hhih")
_SIZE = struct.Struct(">i")
#: A process id, an exit code, or 0 in a request for a new process.
NUMBER = struct.Struct(">i")
_BACKLOG = 512


class _Server:
    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.connections = 0
        self.closed = 0

    async def listen(self, ports: list[int]) -> list[int]:
        servers = [
            await asyncio.start_server(self._serving(node), sock=_listen(port))
            for node, port in enumerate(ports)
        ]
        self.behaviour.ports = [server.sockets[0].getsockname()[1] for server in servers]
        return self.behaviour.ports

    def _serving(self, node: int) -> Any:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            try:
                while True:
                    await self._respond(node, reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError):
                self.closed += 1
                writer.close()

        return serve

    async def _respond(
        self, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
        frame = await reader.readexactly(size)
        key, version, correlation, client = _HEADER.unpack_from(frame)
        position = _HEADER.size + max(client, 0)
        behaviour = self.behaviour
        behaviour.requests[key] += 1
        flexible = key != API_VERSIONS and has_flexible_header(key, version)
        seconds = behaviour.delay(node, key)
        if seconds:
            await asyncio.sleep(seconds)
        # An empty set of tagged fields is one byte, in both headers.
        body = behaviour.answer(node, key, version, frame[position + flexible :])
        if body is None:
            return
        seconds, behaviour.wait_seconds = behaviour.wait_seconds, 0.0
        if seconds:
            # Like a broker at the end of a log; otherwise the client would fetch in a tight loop.
            await asyncio.sleep(seconds)
        response = _SIZE.pack(correlation) + bytes(flexible) + body
        writer.write(_SIZE.pack(len(response)) + response)
        await writer.drain()

    def command(self, name: str, value: Any) -> Any:
        if name == "set":
            self.behaviour.__dict__.update(value)
        elif name == "get":
            return getattr(self.behaviour, value)
        return {
            "connections": self.connections,
            "closed": self.closed,
            "requests": dict(self.behaviour.requests),
        }


def _listen(port: int) -> socket.socket:
    try:
        return listen(port=port, backlog=_BACKLOG)
    except OSError:
        # Another process took the port after the parent process had found it free.
        return listen(backlog=_BACKLOG)


def write_value(value: Any, pipe: BinaryIO) -> None:
    """
    Write a value to the other process.
    """
    data = pickle.dumps(value)
    pipe.write(_SIZE.pack(len(data)) + data)
    pipe.flush()


def read_value(pipe: BinaryIO) -> Any:
    """
    Return the next value from the other process; raises EOFError at the end.
    """
    head = pipe.read(_SIZE.size)
    if len(head) < _SIZE.size:
        raise EOFError
    return pickle.loads(pipe.read(*_SIZE.unpack(head)))  # noqa: S301 (from our parent process)


async def _serve_cluster(commands: BinaryIO, replies: BinaryIO) -> None:
    loop = asyncio.get_running_loop()
    server = _Server(read_value(commands))
    write_value(await server.listen(read_value(commands)), replies)
    while True:
        try:
            name, value = await loop.run_in_executor(None, read_value, commands)
        except EOFError:
            return
        write_value(server.command(name, value), replies)


def _run_cluster(pipes: Sequence[int]) -> NoReturn:
    exit_code = 1
    try:
        # Otherwise all forks would draw the same numbers.
        random.seed()
        # The end of the process closes the pipes, so the test process finds its exit code.
        commands, replies = os.fdopen(pipes[0], "rb"), os.fdopen(pipes[1], "wb")
        asyncio.run(_serve_cluster(commands, replies))
        exit_code = 0
    finally:
        if exit_code:
            traceback.print_exc()
        os._exit(exit_code)


def _serve_requests(channel: socket.socket) -> None:
    """
    For each request with two pipes, fork a process that serves a cluster, and return its id. For
    each request without pipes, kill the process with that id, and return its exit code.
    """
    while True:
        request, pipes, _, _ = socket.recv_fds(channel, NUMBER.size, 2)
        if not request:
            # The test process has ended.
            return
        if pipes:
            number = os.fork()
            if number == 0:
                channel.close()
                _run_cluster(pipes)
            for pipe in pipes:
                os.close(pipe)
        else:
            (process,) = NUMBER.unpack(request)
            os.kill(process, signal.SIGKILL)
            number = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        channel.sendall(NUMBER.pack(number))


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as to_test_process:
        _serve_requests(to_test_process)
