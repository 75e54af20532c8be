"""
A TCP proxy that forwards Kafka frames, for network faults that killing processes cannot produce.

Each direction of each connection has a thread that forwards whole frames. A setting that a test
changes applies to the frames that arrive afterwards.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.support.listening import listen

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from typing import Self

    #: Takes the API key and a frame without its size; returns the frame to send, None to drop it.
    Rewrite = Callable[[int, bytes], bytes | None]

_SIZE = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")
_PIECE_BYTES = 4096
_BACKLOG = 128
_CONNECT_SECONDS = 5.0
_POLL_SECONDS = 0.02
# Linux reports a closed peer even while there are unread data.
_CLOSED = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR
# A closed socket normally sends FIN; with a linger time of 0 it sends RST.
_NO_LINGER = struct.pack("ii", 1, 0)


@dataclass(eq=False)
class _Pair:
    """
    A client's connection, and the proxy's own connection to the broker.
    """

    number: int
    client: socket.socket
    broker: socket.socket
    #: The API keys of the requests in flight, by correlation id.
    keys: dict[int, int] = field(default_factory=dict)
    is_reset: bool = False

    def close(self) -> None:
        """
        Close both; shutdown() wakes the reading threads, and sends FIN unless this is a reset.
        """
        how = socket.SHUT_RD if self.is_reset else socket.SHUT_RDWR
        for connection in (self.client, self.broker):
            with contextlib.suppress(OSError):
                if self.is_reset:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
                connection.shutdown(how)
            connection.close()


class Proxy:
    """
    Proxies one broker.

    ``delay`` is in seconds, for each direction; ``rate`` limits responses, in bytes per second (0
    for no limit). ``requests`` counts requests by API key, ``accepted`` connections, and
    ``held_requests`` the requests that wait to be released.
    """

    def __init__(self, target: tuple[str, int], host: str = "127.0.0.1", port: int = 0) -> None:
        self.target = target
        self.host = host
        self.delay = 0.0
        self.rate = 0
        self.accepted = 0
        self.held_requests = 0
        self.requests: Counter[int] = Counter()
        self.on_request: Rewrite | None = None
        self.on_response: Rewrite | None = None
        self._holding: frozenset[int] = frozenset()
        self._dropping: frozenset[int] = frozenset()
        self._black_hole = False
        self._forgotten = 0
        self._closed = False
        self._change = threading.Condition()
        self._pairs: list[_Pair] = []
        self._fillers: list[socket.socket] = []
        self._listener = listen(self.host, port=port, backlog=_BACKLOG)
        self.port: int = self._listener.getsockname()[1]
        self._serve()

    @property
    def address(self) -> str:
        """
        Host and port, as in ``bootstrap.servers``.
        """
        return f"{self.host}:{self.port}"

    @property
    def open_connections(self) -> int:
        """
        How many connections of clients are open, silent ones included.
        """
        return len(self._pairs)

    def hold(self, api_keys: Collection[int]) -> None:
        """
        Hold requests with these API keys until :meth:`release`.
        """
        with self._change:
            self._holding = frozenset(api_keys)

    def release(self) -> None:
        """
        Forward the held requests, and all further ones.
        """
        with self._change:
            self._holding = frozenset()
            self._change.notify_all()

    def drop_responses(self, api_keys: Collection[int]) -> None:
        """
        Drop the responses to these API keys from now on; the broker still handles the requests.
        """
        self._dropping = frozenset(api_keys)

    def black_hole(self) -> None:
        """
        Forward nothing; new connections are accepted but get no data.
        """
        self._black_hole = True

    def forget_connections(self) -> None:
        """
        Forward nothing on existing connections, like a firewall that forgot them; new ones work.
        """
        self._forgotten = self.accepted

    def refuse_connections(self) -> None:
        """
        Refuse new connections; open ones continue.
        """
        self._stop_listening()

    def drop_syns(self) -> None:
        """
        Ignore connection attempts, and forward nothing, like a host without power.
        """
        self._black_hole = True
        self._stop_listening()
        self._listener = listen(self.host, port=self.port, backlog=0)
        # The kernel drops SYNs once the accept queue is full.
        while self._connects():
            pass

    def heal(self) -> None:
        """
        Accept and forward again; frames and connections that were lost stay lost.
        """
        self.release()
        self.drop_responses(())
        self._stop_listening()
        self.forget_connections()
        self._black_hole = False
        self._listener = listen(self.host, port=self.port, backlog=_BACKLOG)
        self._serve()

    def disconnect(self, *, reset: bool = False) -> None:
        """
        Close the open connections, by FIN or by RST.
        """
        with self._change:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            pair.is_reset = reset
            pair.close()

    def close(self) -> None:
        """
        Stop listening and close all connections.
        """
        self._closed = True
        self.release()
        self._stop_listening()
        self.disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- Listening ------------------------------------------------------------------------------

    def _serve(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _stop_listening(self) -> None:
        for filler in self._fillers:
            filler.close()
        self._fillers.clear()
        with contextlib.suppress(OSError):
            # Wakes the accepting thread; close() alone would not.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _connects(self) -> bool:
        filler = socket.socket(self._listener.family, socket.SOCK_STREAM)
        filler.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            filler.connect((self.host, self.port))
        self._fillers.append(filler)
        _, done, _ = select.select([], [filler], [], 0.2)
        return bool(done)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self._open, args=(client, self.accepted), daemon=True).start()

    def _open(self, client: socket.socket, number: int) -> None:
        try:
            broker = socket.create_connection(self.target, _CONNECT_SECONDS)
        except OSError:
            with contextlib.suppress(EOFError):
                self._wait_while_silent(number, client)
            client.close()
            return
        broker.settimeout(None)
        for connection in (client, broker):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pair = _Pair(number, client, broker)
        with self._change:
            self._pairs.append(pair)
        threading.Thread(target=self._run, args=(pair, self._requests), daemon=True).start()
        self._run(pair, self._responses)

    # --- Forwarding -----------------------------------------------------------------------------

    def _run(self, pair: _Pair, forward: Callable[[_Pair], None]) -> None:
        try:
            forward(pair)
        except (OSError, EOFError):
            # A client that is partitioned off does not see the end of the connection, either.
            with contextlib.suppress(EOFError):
                self._wait_while_silent(pair.number, pair.client)
            self._forget(pair)

    def _requests(self, pair: _Pair) -> None:
        for frame in _frames(pair.client):
            key, _, correlation = _REQUEST.unpack_from(frame)
            self.requests[key] += 1
            pair.keys[correlation] = key
            self._wait_while_silent(pair.number, pair.client)
            self._wait_while_held(key)
            sent = frame if self.on_request is None else self.on_request(key, frame)
            if sent is not None:
                time.sleep(self.delay)
                pair.broker.sendall(_SIZE.pack(len(sent)) + sent)

    def _responses(self, pair: _Pair) -> None:
        for frame in _frames(pair.broker):
            (correlation,) = _SIZE.unpack_from(frame)
            key = pair.keys.pop(correlation, -1)
            self._wait_while_silent(pair.number, pair.client)
            if key in self._dropping:
                continue
            sent = frame if self.on_response is None else self.on_response(key, frame)
            if sent is not None:
                time.sleep(self.delay)
                self._send_slowly(pair.client, _SIZE.pack(len(sent)) + sent)

    def _send_slowly(self, client: socket.socket, data: bytes) -> None:
        if not self.rate:
            client.sendall(data)
            return
        for start in range(0, len(data), _PIECE_BYTES):
            piece = data[start : start + _PIECE_BYTES]
            time.sleep(len(piece) / self.rate)
            client.sendall(piece)

    def _wait_while_held(self, key: int) -> None:
        with self._change:
            if key in self._holding:
                self.held_requests += 1
                self._change.wait_for(lambda: key not in self._holding)
                self.held_requests -= 1

    def _wait_while_silent(self, number: int, client: socket.socket) -> None:
        """
        Wait until frames are forwarded again; raises EOFError once the client has closed.
        """
        while not self._closed and (self._black_hole or number <= self._forgotten):
            # Negative once the other thread of the pair has closed it.
            descriptor = client.fileno()
            poll = select.poll()
            if descriptor >= 0:
                poll.register(descriptor, _CLOSED)
            if descriptor < 0 or poll.poll(_POLL_SECONDS * 1000):
                raise EOFError

    def _forget(self, pair: _Pair) -> None:
        pair.close()
        with self._change:
            if pair in self._pairs:
                self._pairs.remove(pair)


def _frames(source: socket.socket) -> Iterator[bytes]:
    while True:
        (size,) = _SIZE.unpack(_read_exactly(source, _SIZE.size))
        yield _read_exactly(source, size)


def _read_exactly(source: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        count = source.recv_into(rest)
        if not count:
            raise EOFError
        rest = rest[count:]
    return bytes(data)
