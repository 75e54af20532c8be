"""
The process of a stub cluster: one event loop that serves all its brokers.

It reads a behaviour, ports, and then commands from standard input, as pickles, and writes the
replies to standard output.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
import sys
from typing import TYPE_CHECKING, Any, BinaryIO

from tests.support.listening import listen
from tests.support.stub_behaviour import API_VERSIONS, has_flexible_header

if TYPE_CHECKING:
    import socket

    from tests.support.stub_behaviour import Behaviour

_HEADER = struct.Struct(">hhih")
_SIZE = struct.Struct(">i")
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


async def _main() -> None:
    loop = asyncio.get_running_loop()
    server = _Server(read_value(sys.stdin.buffer))
    write_value(await server.listen(read_value(sys.stdin.buffer)), sys.stdout.buffer)
    while True:
        try:
            name, value = await loop.run_in_executor(None, read_value, sys.stdin.buffer)
        except EOFError:
            return
        write_value(server.command(name, value), sys.stdout.buffer)


if __name__ == "__main__":
    asyncio.run(_main())
