"""
A simulated TCP network between processes and brokers, with the faults of real ones.

Bytes in one direction of a connection arrive in order, after a random delay, which the seed
determines. A link that is cut keeps them, as TCP's retransmissions do, until it is healed or the
connection is reset.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

from tests.simulation.kernel.world import Process, Signal, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_SIZE = struct.Struct(">i")
_LATENCY_SECONDS = 5e-4
#: The events that ``poll`` always reports.
_ALWAYS = select.POLLERR | select.POLLHUP | select.POLLNVAL


class Server(Protocol):
    """
    The handler of all requests to the nodes' addresses.
    """

    def handle(self, node_id: int, frame: bytes, reply: Callable[[bytes | None], None]) -> None:
        """
        Handle one request, passed without its length prefix; the reply None closes the connection.
        """


@dataclass(slots=True)
class Link:
    """
    The path between one node and one process, or all processes.
    """

    #: Nothing arrives in either direction, and no error is reported.
    is_cut: bool = False
    #: Nothing arrives from the node.
    drops_responses: bool = False
    #: Connections are refused.
    refuses: bool = False
    #: Added to each delay, in seconds.
    delay: float = 0.0

    def with_others(self, other: Link) -> Link:
        """
        Return a link with the faults of both links.
        """
        return Link(
            self.is_cut or other.is_cut,
            self.drops_responses or other.drops_responses,
            self.refuses or other.refuses,
            self.delay + other.delay,
        )


_NO_FAULTS = Link()


class Network:
    """
    Connects simulated processes with the nodes of a server.
    """

    def __init__(self, world: World, server: Server, addresses: dict[tuple[str, int], int]) -> None:
        self.world = world
        self.server = server
        self.down: set[int] = set()
        self._addresses = addresses
        self._links: dict[tuple[str | None, int], Link] = {}
        self.connections: dict[Connection, None] = {}
        #: Sees each request before its node does.
        self.on_request: Callable[[Connection, bytes], None] = _ignore
        #: For how long a node handles no further request of a connection after a response.
        self.muted_seconds: Callable[[int], float] = lambda _: 0.0
        world.on_kill.append(self._close_all)

    def node_at(self, address: tuple[str, int]) -> int | None:
        """
        Return the node that listens at an address, or None.
        """
        return self._addresses.get(address)

    def link(self, node: int, process: str | None = None) -> Link:
        """
        Return the link of a process to a node, or, without ``process``, the link of all processes.
        """
        return self._links.setdefault((process, node), Link())

    def heal(self) -> None:
        """
        Remove all faults of links, and deliver the delayed data.
        """
        self._links.clear()
        for connection in tuple(self.connections):
            connection.flush()

    def reset(self, node: int, process: str | None = None) -> None:
        """
        Reset the connections to a node, as the node or a firewall would.
        """
        for connection in tuple(self.connections):
            if connection.node == node and process in {None, connection.process.name}:
                connection.reset()

    def faults(self, connection: Connection) -> Link:
        """
        Return the faults that apply to a connection.
        """
        links = self._links
        if not links:
            return _NO_FAULTS
        of_all = links.get((None, connection.node), _NO_FAULTS)
        link = links.get((connection.process.name, connection.node))
        if link is None:
            return of_all
        return link if of_all is _NO_FAULTS else link.with_others(of_all)

    def latency(self) -> float:
        """
        Return the time that a piece of data takes, mostly short.
        """
        draw = self.world.random.random
        return _LATENCY_SECONDS * draw() * (100.0 if draw() < 0.02 else 1.0)

    def _close_all(self, process: Process) -> None:
        for connection in tuple(self.connections):
            if connection.process is process:
                connection.close()


def _ignore(connection: Connection, request: bytes) -> None:
    """
    Do nothing.
    """


@dataclass(slots=True)
class _Direction:
    """
    The data in flight to one end.
    """

    arrives_at: float = 0.0
    delayed: deque[Callable[[], None]] = field(default_factory=deque)


class Connection:
    """
    One TCP connection; the client's end is a :class:`Socket`, the node's a queue of requests.
    """

    def __init__(self, network: Network, client: Socket, node: int) -> None:
        self.network = network
        self.client = client
        self.node = node
        self.process = client.process
        self.is_open = True
        self._is_reset = False
        self._to_node, self._to_client = _Direction(), _Direction()
        self._input = bytearray()
        self._requests: deque[bytes] = deque()
        self._is_busy = False
        network.connections[self] = None
        self._deliver(self._to_node, self._accept)

    def send(self, data: bytes) -> None:
        """
        Send bytes to the node.
        """
        self._deliver(self._to_node, lambda: self._receive(data))

    def close(self) -> None:
        """
        Close the client's end; data in flight still arrives.
        """
        self.is_open = False
        self.network.connections.pop(self, None)

    def reset(self) -> None:
        """
        Reset the connection: both ends find out at once.
        """
        if self.is_open:
            self.close()
            self._drop()
            self.client.fail(errno.ECONNRESET)

    def lose(self) -> None:
        """
        Drop all data in flight, as when the whole machine fails.
        """
        self.close()
        self._drop()

    def _drop(self) -> None:
        self._is_reset = True
        self._to_node.delayed.clear()
        self._to_client.delayed.clear()
        self._requests.clear()

    def flush(self) -> None:
        """
        Deliver the data that a cut link had delayed.
        """
        for direction in (self._to_node, self._to_client):
            delayed, direction.delayed = direction.delayed, deque()
            for action in delayed:
                self._deliver(direction, action)

    def _deliver(self, direction: _Direction, action: Callable[[], None]) -> None:
        faults = self.network.faults(self)
        if faults.is_cut or (faults.drops_responses and direction is self._to_client):
            direction.delayed.append(action)
            return
        if direction.delayed:
            direction.delayed.append(action)
            return
        world = self.network.world
        arrival = max(
            world.elapsed + self.network.latency() + faults.delay, direction.arrives_at + 1e-9
        )
        direction.arrives_at = arrival
        world.call_later(arrival - world.elapsed, lambda: self._arrive(direction, action))

    def _arrive(self, direction: _Direction, action: Callable[[], None]) -> None:
        if self._is_reset:
            return
        faults = self.network.faults(self)
        if faults.is_cut or (faults.drops_responses and direction is self._to_client):
            direction.delayed.append(action)
        else:
            action()

    # --- The node's end ---------------------------------------------------------------------------

    def _accept(self) -> None:
        if self.node in self.network.down or self.network.faults(self).refuses:
            self._deliver(self._to_client, self._refuse)
        else:
            self._deliver(self._to_client, self.client.established)

    def _refuse(self) -> None:
        self.close()
        self.client.fail(errno.ECONNREFUSED)

    def _receive(self, data: bytes) -> None:
        if self.node in self.network.down:
            self.reset()
            return
        self._input += data
        while len(self._input) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._input)
            if len(self._input) < _SIZE.size + size:
                break
            self._requests.append(bytes(self._input[_SIZE.size : _SIZE.size + size]))
            del self._input[: _SIZE.size + size]
        self._next_request()

    def _next_request(self) -> None:
        if self._requests and not self._is_busy and self.node not in self.network.down:
            self._is_busy = True
            request = self._requests.popleft()
            self.network.on_request(self, request)
            if self._is_reset:
                return
            self.network.server.handle(self.node, request, self._reply)

    def _reply(self, response: bytes | None) -> None:
        self._is_busy = False
        if response is None or self.node in self.network.down:
            self.reset()
        if self._is_reset:
            return
        if response:
            data = _SIZE.pack(len(response)) + response
            self._deliver(self._to_client, lambda: self.client.received(data))
        seconds = self.network.muted_seconds(self.node)
        if seconds:
            self._is_busy = True
            self.network.world.call_later(seconds, self._unmute)
        else:
            self._next_request()

    def _unmute(self) -> None:
        self._is_busy = False
        self._next_request()


class Socket:
    """
    ``socket.socket`` of a simulated process.
    """

    def __init__(self, network: Network, sockets: Sockets) -> None:
        self.network = network
        self.process = network.world.task.process
        self._sockets = sockets
        self._number = sockets.add(self)
        self.changed = Signal(network.world)
        self._input = bytearray()
        self._timeout: float | None = None
        self._connection: Connection | None = None
        self._peer: tuple[str, int] | None = None
        self._error = 0
        self._state = "new"

    # --- Called by the network --------------------------------------------------------------------

    def established(self) -> None:
        """
        The node has accepted the connection.
        """
        if self._state == "connecting":
            self._state = "open"
            self.changed.notify()

    def received(self, data: bytes) -> None:
        """
        Bytes have arrived.
        """
        if self._state == "open":
            self._input += data
            self.changed.notify()

    def fail(self, error: int) -> None:
        """
        The connection has ended with an error.
        """
        if self._state != "closed":
            self._state, self._error = "failed", error
            self._input.clear()
            self.changed.notify()

    def events(self) -> int:
        """
        Return the events that ``poll`` reports.
        """
        if self._state == "failed":
            return select.POLLIN | select.POLLOUT | select.POLLERR | select.POLLHUP
        if self._state == "open":
            return select.POLLOUT | (select.POLLIN if self._input else 0)
        return select.POLLNVAL if self._state == "closed" else 0

    # --- Called by the connector ------------------------------------------------------------------

    def fileno(self) -> int:
        """
        Return the descriptor, -1 when closed.
        """
        return -1 if self._state == "closed" else self._number

    def settimeout(self, seconds: float | None) -> None:
        """
        Set how long calls wait.
        """
        self._timeout = seconds

    def setsockopt(self, *_: object) -> None:
        """
        Accept all options.
        """

    def getsockopt(self, _: int, option: int) -> int:
        """
        Return the pending error for SO_ERROR.
        """
        if option != socket.SO_ERROR:
            raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))
        return self._error

    def connect_ex(self, address: tuple[str, int]) -> int:
        """
        Start to connect.
        """
        node = self.network.node_at((address[0], address[1]))
        if node is None:
            return errno.ECONNREFUSED
        self._state, self._peer = "connecting", (address[0], address[1])
        self._connection = Connection(self.network, self, node)
        return errno.EINPROGRESS

    def getpeername(self) -> tuple[str, int]:
        """
        Return the node's address.
        """
        if self._state != "open" or self._peer is None:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return self._peer

    def getsockname(self) -> tuple[str, int]:
        """
        Return an address of the process.
        """
        return ("client", self._number)

    def sendmsg(self, pieces: Sequence[bytes]) -> int:
        """
        Send all pieces; the buffers of the simulated network are unbounded.
        """
        data = b"".join(pieces)
        connection = self._checked()
        connection.send(data)
        self.network.world.give_way(0.05)
        return len(data)

    def send(self, data: bytes) -> int:
        """
        Send bytes.
        """
        return self.sendmsg([data])

    def recv_into(self, view: memoryview) -> int:
        """
        Receive some bytes, 0 at the end.
        """
        self._await_input()
        size = min(len(view), len(self._input))
        view[:size] = self._input[:size]
        del self._input[:size]
        return size

    def recv(self, size: int) -> bytes:
        """
        Receive some bytes.
        """
        self._await_input()
        data = bytes(self._input[:size])
        del self._input[:size]
        return data

    def close(self) -> None:
        """
        Close the socket.
        """
        if self._state != "closed":
            self._state = "closed"
            self._sockets.remove(self._number)
            if self._connection is not None:
                self._connection.close()

    def _await_input(self) -> None:
        self._checked()
        if self._input:
            return
        world = self.network.world
        if not world.wait(
            lambda: self._input or self._state != "open", self._timeout, self.changed
        ):
            raise TimeoutError("timed out")
        self._checked()

    def _checked(self) -> Connection:
        if self._state == "failed":
            raise OSError(self._error, os.strerror(self._error))
        if self._state != "open" or self._connection is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._connection


class PairEnd:
    """
    One end of ``socket.socketpair``, within a process and without delays.
    """

    def __init__(self, world: World, sockets: Sockets) -> None:
        self.changed = Signal(world)
        self.input = bytearray()
        self.other = self
        self._sockets = sockets
        self._number = sockets.add(self)

    def events(self) -> int:
        """
        Return the events that ``poll`` reports.
        """
        return select.POLLOUT | (select.POLLIN if self.input else 0)

    def fileno(self) -> int:
        """
        Return the descriptor.
        """
        return self._number

    def settimeout(self, seconds: float) -> None:
        """
        Accept 0 only: no call waits.
        """
        if seconds:
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    def send(self, data: bytes) -> int:
        """
        Send bytes to the other end.
        """
        self.other.input += data
        self.other.changed.notify()
        return len(data)

    def recv(self, size: int) -> bytes:
        """
        Receive some bytes.
        """
        if not self.input:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        data = bytes(self.input[:size])
        del self.input[:size]
        return data

    def close(self) -> None:
        """
        Close this end.
        """
        self._sockets.remove(self._number)


class Sockets:
    """
    The descriptors of all processes.
    """

    def __init__(self, world: Any) -> None:
        self.world = world
        #: Set for each history, which is one run of the simulation with one seed.
        self.network: Network | None = None
        self._open: dict[int, Socket | PairEnd] = {}
        self._numbers = count(3)

    def add(self, item: Socket | PairEnd) -> int:
        """
        Add a socket and return its descriptor.
        """
        number = next(self._numbers)
        self._open[number] = item
        return number

    def remove(self, number: int) -> None:
        """
        Forget a closed socket.
        """
        self._open.pop(number, None)

    def of(self, number: int) -> Socket | PairEnd | None:
        """
        Return the open socket of a descriptor, or None.
        """
        return self._open.get(number)

    def start(self, network: Network) -> None:
        """
        Begin a history.
        """
        self.network = network
        self._open.clear()
        self._numbers = count(3)

    def open(self, *_: object) -> Socket:
        """
        Return a new socket.
        """
        if self.network is None:
            msg = "there is no network outside a history"
            raise RuntimeError(msg)
        return Socket(self.network, self)

    def pair(self) -> tuple[PairEnd, PairEnd]:
        """
        Return two connected sockets.
        """
        world: World = self.world.present
        first, second = PairEnd(world, self), PairEnd(world, self)
        first.other, second.other = second, first
        return first, second


class Poll:
    """
    ``select.poll`` over simulated sockets.
    """

    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets
        self._registered: dict[int, int] = {}

    def register(self, item: Any, flags: int = select.POLLIN) -> None:
        """
        Watch a socket or a descriptor.
        """
        self._registered[item if isinstance(item, int) else item.fileno()] = flags

    def unregister(self, item: Any) -> None:
        """
        Stop watching.
        """
        del self._registered[item if isinstance(item, int) else item.fileno()]

    def poll(self, milliseconds: float | None = None) -> list[tuple[int, int]]:
        """
        Return the events, waiting for the first of them.
        """
        events = self._events()
        if events or milliseconds == 0:
            return events

        def is_ready() -> bool:
            nonlocal events
            events = self._events()
            return bool(events)

        seconds = None if milliseconds is None or milliseconds < 0 else milliseconds / 1000
        watched = [self._sockets.of(number) for number in self._registered]
        signals = [item.changed for item in watched if item is not None]
        self._sockets.world.present.wait(is_ready, seconds, *signals)
        return events

    def _events(self) -> list[tuple[int, int]]:
        ready = []
        for number, flags in self._registered.items():
            item = self._sockets.of(number)
            events = select.POLLNVAL if item is None else item.events() & (flags | _ALWAYS)
            if events:
                ready.append((number, events))
        return ready


def network_modules(sockets: Sockets, hosts: Iterable[str]) -> dict[str, Any]:
    """
    Return the simulated ``socket`` and ``select``; ``hosts`` are the names that resolve.
    """
    host_names = frozenset(hosts)

    def getaddrinfo(host: Any, port: int, *_: object, **__: object) -> list[tuple[Any, ...]]:
        name = host.decode() if isinstance(host, bytes) else host
        if name not in host_names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (name, port))]

    constants = {
        name: value for name, value in vars(socket).items() if name.isupper() and "_" in name
    }
    return {
        "socket": SimpleNamespace(
            **constants,
            socket=sockets.open,
            socketpair=sockets.pair,
            getaddrinfo=getaddrinfo,
            gethostname=lambda: "host",
            gaierror=socket.gaierror,
            timeout=TimeoutError,
            error=OSError,
        ),
        "select": SimpleNamespace(
            poll=lambda: Poll(sockets),
            **{name: value for name, value in vars(select).items() if name.startswith("POLL")},
        ),
    }
