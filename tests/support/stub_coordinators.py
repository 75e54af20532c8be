"""
Stub transaction coordinators in a process of their own, with Kafka's states but without records.

A cluster of brokers that handle ApiVersions, Metadata and the transaction APIs. :func:`home` is the
first coordinator of a transactional id. A connection's requests are handled in order, as by real
brokers; those that change a transaction take ``replication`` seconds each.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import struct
import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.support.listening import listen

if TYPE_CHECKING:
    import socket
    from multiprocessing.connection import Connection as Pipe
    from types import TracebackType
    from typing import Self

METADATA, FIND, VERSIONS, INIT, ADD, END = 3, 10, 18, 22, 24, 26
DESCRIBE, LIST = 65, 66
_VERSIONS = {
    METADATA: (4, 7),
    FIND: (4, 4),
    VERSIONS: (0, 0),
    INIT: (1, 1),
    ADD: (1, 1),
    END: (1, 1),
    DESCRIBE: (0, 0),
    LIST: (0, 0),
}
_CHANGING = (INIT, ADD, END)
_FLEXIBLE = (FIND, DESCRIBE, LIST)

_NOT_COORDINATOR, _FENCED, _INVALID_STATE, _WRONG_ID, _CONCURRENT = 16, 90, 48, 49, 51
_NOT_FOUND, _UNSUPPORTED = 105, 35


def home(name: str, brokers: int) -> int:
    """
    Return the first coordinator of a transactional id.
    """
    return zlib.crc32(name.encode()) % brokers


@dataclass
class Known:
    """
    The state of one transactional id.
    """

    producer_id: int
    epoch: int
    state: str = "Empty"
    partitions: list[tuple[str, int]] = field(default_factory=list)


@dataclass
class Coordination:
    """
    The state of all coordinators; a test may set attributes while they run.
    """

    brokers: int = 1
    #: How many seconds a change of a transaction takes.
    replication: float = 0.0
    #: Brokers that accept requests without responding.
    silent: frozenset[int] = frozenset()
    #: Requests with these API keys wait until this changes, and are then handled.
    held_apis: frozenset[int] = frozenset()
    #: Coordinators by the node that they replace.
    moved: dict[int, int] = field(default_factory=dict)
    #: By API key: an error code, and how often each transactional id gets it.
    errors: dict[int, tuple[int, int]] = field(default_factory=dict)
    #: Whether an ended transaction completes; otherwise it stays in its Prepare state.
    completes: bool = True
    #: By API key: up to this number n, the n-th request to a broker waits until every broker has
    #: received its own n-th request.
    lockstep: dict[int, int] = field(default_factory=dict)
    #: A transaction that ends just before a request: (API key, transactional id, commit).
    before: tuple[int, str, bool] | None = None
    names: dict[str, Known] = field(default_factory=dict)
    requests: Counter[tuple[int, int]] = field(default_factory=Counter)
    #: The transactional ids of EndTxn requests, in the order of their arrival at any broker.
    ends: list[str] = field(default_factory=list)
    connections: Counter[int] = field(default_factory=Counter)
    ports: list[int] = field(default_factory=list)
    _failed: Counter[tuple[int, str]] = field(default_factory=Counter)

    def coordinator(self, name: str) -> int:
        node = home(name, self.brokers)
        return self.moved.get(node, node)

    def initialise(self, name: str) -> tuple[int, int, int]:
        entry = self.names.get(name)
        if entry is None:
            entry = self.names[name] = Known(1000 + len(self.names), 0)
            return 0, entry.producer_id, entry.epoch
        if entry.state in {"PrepareCommit", "PrepareAbort"}:
            return _CONCURRENT, -1, -1
        entry.epoch += 1
        if entry.state == "Ongoing":
            self._complete(entry, "Abort")
            return _CONCURRENT, -1, -1
        entry.state, entry.partitions = "Empty", []
        return 0, entry.producer_id, entry.epoch

    def join(self, name: str, identity: tuple[int, int], tps: list[tuple[str, int]]) -> int:
        entry = self.names.get(name)
        if entry is None:
            return _WRONG_ID
        if identity != (entry.producer_id, entry.epoch):
            return _FENCED
        entry.state = "Ongoing"
        entry.partitions += tps
        return 0

    def end(self, name: str, identity: tuple[int, int], *, commit: bool) -> int:
        entry = self.names.get(name)
        if entry is None or entry.producer_id != identity[0]:
            return _WRONG_ID
        if entry.epoch != identity[1]:
            return _FENCED
        verb = "Commit" if commit else "Abort"
        if entry.state == "Ongoing":
            self._complete(entry, verb)
            return 0
        if entry.state == f"Prepare{verb}":
            return _CONCURRENT
        return 0 if entry.state == f"Complete{verb}" else _INVALID_STATE

    def _complete(self, entry: Known, verb: str) -> None:
        entry.state = f"Complete{verb}" if self.completes else f"Prepare{verb}"

    def planned_error(self, key: int, name: str) -> int:
        code, times = self.errors.get(key, (0, 0))
        self._failed[key, name] += 1
        return code if self._failed[key, name] <= times else 0


# --- The part of the protocol that tests need -----------------------------------------------------


def _string(text: str | None) -> bytes:
    if text is None:
        return struct.pack(">h", -1)
    return struct.pack(">h", len(text)) + text.encode()


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _compact(text: str) -> bytes:
    return _varint(len(text) + 1) + text.encode()


class _Body:
    def __init__(self, body: bytes) -> None:
        self._body, self._position = body, 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(f">{form}", self._body, self._position)
        self._position += struct.calcsize(f">{form}")
        return int(value)

    def text(self) -> str:
        size = self.number("h")
        self._position += max(size, 0)
        return self._body[self._position - max(size, 0) : self._position].decode()

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._body[self._position]
            self._position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def compact(self) -> str:
        size = self.varint() - 1
        self._position += size
        return self._body[self._position - size : self._position].decode()

    def compacts(self) -> list[str]:
        return [self.compact() for _ in range(self.varint() - 1)]


class _Responses:
    def __init__(self, state: Coordination) -> None:
        self._state = state

    def to(self, node: int, key: int, body: _Body) -> bytes:
        handler = {
            VERSIONS: self._versions,
            METADATA: self._metadata,
            FIND: self._find,
            INIT: self._init,
            ADD: self._add,
            END: self._end,
            DESCRIBE: self._describe,
            LIST: self._list,
        }[key]
        return handler(node, body)

    def _versions(self, _: int, __: _Body) -> bytes:
        ranges = (
            struct.pack(">hhh", key, *version_range) for key, version_range in _VERSIONS.items()
        )
        return struct.pack(">hi", 0, len(_VERSIONS)) + b"".join(ranges)

    def _metadata(self, _: int, body: _Body) -> bytes:
        topics = [body.text() for _ in range(max(body.number("i"), 0))]
        brokers = b"".join(
            struct.pack(">i", node) + _string("127.0.0.1") + struct.pack(">i", port) + _string(None)
            for node, port in enumerate(self._state.ports)
        )
        missing = b"".join(
            struct.pack(">h", 3) + _string(topic) + struct.pack(">bi", 0, 0) for topic in topics
        )
        head = struct.pack(">ii", 0, self._state.brokers) + brokers + _string("c")
        return head + struct.pack(">ii", 0, len(topics)) + missing

    def _find(self, _: int, body: _Body) -> bytes:
        body.number("b")
        coordinators = []
        for name in body.compacts():
            node = self._state.coordinator(name)
            address = struct.pack(">i", node) + _compact("127.0.0.1")
            port = struct.pack(">ih", self._state.ports[node], 0)
            coordinators.append(_compact(name) + address + port + b"\x00\x00")
        return (
            struct.pack(">i", 0) + _varint(len(coordinators) + 1) + b"".join(coordinators) + b"\x00"
        )

    def _error(self, node: int, key: int, name: str) -> int:
        if self._state.coordinator(name) != node:
            return _NOT_COORDINATOR
        return self._state.planned_error(key, name)

    def _init(self, node: int, body: _Body) -> bytes:
        name = body.text()
        error = self._error(node, INIT, name)
        result = (error, -1, -1) if error else self._state.initialise(name)
        return struct.pack(">ihqh", 0, *result)

    def _add(self, node: int, body: _Body) -> bytes:
        name, identity, tps = body.text(), (body.number("q"), body.number("h")), []
        for _ in range(body.number("i")):
            topic = body.text()
            tps += [(topic, body.number("i")) for _ in range(body.number("i"))]
        code = self._error(node, ADD, name) or self._state.join(name, identity, tps)
        head = struct.pack(">ii", 0, len(tps))
        results = (_string(topic) + struct.pack(">iih", 1, number, code) for topic, number in tps)
        return head + b"".join(results)

    def _end(self, node: int, body: _Body) -> bytes:
        name, identity = body.text(), (body.number("q"), body.number("h"))
        self._state.ends.append(name)
        commit = bool(body.number("b"))
        code = self._error(node, END, name) or self._state.end(name, identity, commit=commit)
        return struct.pack(">ih", 0, code)

    def _describe(self, node: int, body: _Body) -> bytes:
        names = body.compacts()
        descriptions = b"".join(self._described(node, name) for name in names)
        return struct.pack(">i", 0) + _varint(len(names) + 1) + descriptions + b"\x00"

    def _described(self, node: int, name: str) -> bytes:
        entry = self._state.names.get(name)
        error = self._error(node, DESCRIBE, name)
        if entry is None or error:
            empty = _compact(name) + _compact("Empty") + struct.pack(">iqqh", 0, 0, -1, -1)
            return struct.pack(">h", error or _NOT_FOUND) + empty + b"\x01\x00"
        numbers = struct.pack(">iqqh", 60_000, 1, entry.producer_id, entry.epoch)
        topics = b"".join(
            _compact(topic) + b"\x02" + struct.pack(">i", number) + b"\x00"
            for topic, number in entry.partitions
        )
        fields = _compact(name) + _compact(entry.state) + numbers
        return b"\x00\x00" + fields + _varint(len(entry.partitions) + 1) + topics + b"\x00"

    def _list(self, node: int, body: _Body) -> bytes:
        states = set(body.compacts())
        listed = [
            _compact(name) + struct.pack(">q", entry.producer_id) + _compact(entry.state) + b"\x00"
            for name, entry in self._state.names.items()
            if self._state.coordinator(name) == node and (not states or entry.state in states)
        ]
        head = struct.pack(">ih", 0, 0) + b"\x01" + _varint(len(listed) + 1)
        return head + b"".join(listed) + b"\x00"


# --- The process ----------------------------------------------------------------------------------


class _Brokers:
    def __init__(self, state: Coordination, listeners: list[socket.socket], pipe: Pipe) -> None:
        self._state, self._listeners, self._pipe = state, listeners, pipe
        self._responses = _Responses(state)
        self._changed = asyncio.Event()
        self._arrived = asyncio.Condition()

    async def run(self) -> None:
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        for node, listener in enumerate(self._listeners):
            await asyncio.start_server(self._serving(node), sock=listener)
        loop.add_reader(self._pipe.fileno(), self._on_command, over)
        await over.wait()

    def _on_command(self, over: asyncio.Event) -> None:
        try:
            attributes = self._pipe.recv()
        except EOFError:
            over.set()
            return
        for name, value in attributes.items():
            setattr(self._state, name, value)
        self._changed.set()
        self._changed = asyncio.Event()
        self._pipe.send(self._state)

    def _serving(self, node: int) -> Any:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._state.connections[node] += 1
            try:
                while True:
                    await self._one(node, reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()

        return serve

    async def _one(
        self, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        frame = await reader.readexactly(size)
        key, version, correlation, client = struct.unpack(">hhih", frame[:10])
        self._state.requests[node, key] += 1
        while node in self._state.silent or key in self._state.held_apis:
            await self._changed.wait()
        if key in self._state.lockstep:
            await self._in_lockstep(key, self._state.requests[node, key])
        if key in _CHANGING and self._state.replication:
            await asyncio.sleep(self._state.replication)
        if self._state.before is not None and self._state.before[0] == key:
            _, name, commit = self._state.before
            entry, self._state.before = self._state.names[name], None
            self._state.end(name, (entry.producer_id, entry.epoch), commit=commit)
        position = 10 + max(client, 0) + (key in _FLEXIBLE)
        tags = b"\x00" if key in _FLEXIBLE else b""
        body = tags + self._responses.to(node, key, _Body(frame[position:]))
        if key == VERSIONS and version:
            # The body is version 0, which every client can read.
            body = struct.pack(">h", _UNSUPPORTED) + body[2:]
        writer.write(struct.pack(">ii", len(body) + 4, correlation) + body)
        await writer.drain()

    async def _in_lockstep(self, key: int, number: int) -> None:
        number = min(number, self._state.lockstep.get(key, 0))
        nodes = range(self._state.brokers)
        async with self._arrived:
            self._arrived.notify_all()
            await self._arrived.wait_for(
                lambda: all(self._state.requests[node, key] >= number for node in nodes)
            )


def _run(state: Coordination, listeners: list[socket.socket], pipe: Pipe) -> None:
    asyncio.run(_Brokers(state, listeners, pipe).run())


class StubCoordinators:
    """
    Runs the coordinators during its ``with`` block.
    """

    def __init__(self, state: Coordination) -> None:
        listeners = [_listener() for _ in range(state.brokers)]
        state.ports = self.ports = [listener.getsockname()[1] for listener in listeners]
        self.bootstrap = f"127.0.0.1:{self.ports[0]}"
        self._pipe, child_pipe = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("fork").Process(
            target=_run, args=(state, listeners, child_pipe), daemon=True
        )
        self._process.start()
        child_pipe.close()
        for listener in listeners:
            listener.close()

    def set(self, **attributes: Any) -> Coordination:
        """
        Set attributes of the :class:`Coordination`, and return its current state.
        """
        self._pipe.send(attributes)
        state: Coordination = self._pipe.recv()
        return state

    @property
    def now(self) -> Coordination:
        """
        The current state of the coordinators.
        """
        return self.set()

    def __enter__(self) -> Self:
        """
        Return self; the brokers are listening already.
        """
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        """
        End the process.
        """
        self._process.kill()
        self._process.join()


def _listener() -> socket.socket:
    listener = listen()
    listener.settimeout(0)
    return listener
