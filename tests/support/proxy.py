"""
A TCP proxy that understands Kafka's framing, for faults that killed processes cannot show.

Each direction of each connection has a thread, which forwards whole frames. What a test sets on the
proxy counts for the frames that come from then on.
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

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from typing_extensions import Self

    #: Gets the API key and a frame without its size; returns what is sent instead, or None.
    Rewrite = Callable[[int, bytes], bytes | None]

_SIZE = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")
_PIECE_BYTES = 4096
_BACKLOG = 128
_CONNECT_SECONDS = 5.0
_LOOK_SECONDS = 0.02
# By default a socket that is closed sends FIN; with a linger of no time it sends RST.
_NO_LINGER = struct.pack("ii", 1, 0)


@dataclass(eq=False)
class _Pair:
    """
    One client's connection and its twin to the broker.
    """

    number: int
    client: socket.socket
    broker: socket.socket
    #: The API key of each request that is not answered yet, by its correlation id.
    keys: dict[int, int] = field(default_factory=dict)
    is_reset: bool = False

    def close(self) -> None:
        """
        End both; shutting down wakes the threads that read, and sends FIN if it is for writing too.
        """
        how = socket.SHUT_RD if self.is_reset else socket.SHUT_RDWR
        for one in (self.client, self.broker):
            with contextlib.suppress(OSError):
                if self.is_reset:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
                one.shutdown(how)
            one.close()


class Proxy:
    """
    Stands before one broker.

    ``delay`` is in seconds, for each direction; ``rate`` limits responses, in bytes per second, and
    0 does not. ``requests`` counts what came by API key, ``accepted`` the connections, ``held`` the
    requests that wait to be released.
    """

    def __init__(self, target: tuple[str, int], host: str = "127.0.0.1", port: int = 0) -> None:
        self.target = target
        self.host = host
        self.delay = 0.0
        self.rate = 0
        self.accepted = 0
        self.held = 0
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
        self._listener = self._listen(port, _BACKLOG)
        self.port: int = self._listener.getsockname()[1]
        self._serve()

    @property
    def address(self) -> str:
        """
        Host and port, as bootstrap servers are given.
        """
        return f"{self.host}:{self.port}"

    def hold(self, api_keys: Collection[int]) -> None:
        """
        Let requests with these API keys wait until :meth:`release`.
        """
        with self._change:
            self._holding = frozenset(api_keys)

    def release(self) -> None:
        """
        Send on what was held, and hold nothing any more.
        """
        with self._change:
            self._holding = frozenset()
            self._change.notify_all()

    def drop_responses(self, api_keys: Collection[int]) -> None:
        """
        Forward no response to these API keys from now on; the broker has done what was asked.
        """
        self._dropping = frozenset(api_keys)

    def black_hole(self) -> None:
        """
        Forward nothing any more; new connections are accepted, and silent.
        """
        self._black_hole = True

    def forget(self) -> None:
        """
        Let all connections that are open now be silent for ever; new ones are well.
        """
        self._forgotten = self.accepted

    def refuse(self) -> None:
        """
        Refuse attempts to connect; what is open goes on.
        """
        self._stop_listening()

    def drop_syns(self) -> None:
        """
        Leave attempts to connect without any answer, and what is open silent: a host without power.
        """
        self._black_hole = True
        self._stop_listening()
        self._listener = self._listen(self.port, 0)
        # The kernel drops SYNs once the queue of those who wait to be accepted is full.
        while self._connects():
            pass

    def heal(self) -> None:
        """
        Forward everything again, and accept; what was swallowed or forgotten stays so.
        """
        self.release()
        self.drop_responses(())
        self._stop_listening()
        self.forget()
        self._black_hole = False
        self._listener = self._listen(self.port, _BACKLOG)
        self._serve()

    def cut(self, *, reset: bool = False) -> None:
        """
        End what is open now: by FIN, or by RST.
        """
        with self._change:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            pair.is_reset = reset
            pair.close()

    def close(self) -> None:
        """
        End everything.
        """
        self._closed = True
        self.release()
        self._stop_listening()
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- Listening ------------------------------------------------------------------------------

    def _listen(self, port: int, backlog: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((self.host, port))
        listener.listen(backlog)
        return listener

    def _serve(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _stop_listening(self) -> None:
        for filler in self._fillers:
            filler.close()
        self._fillers.clear()
        with contextlib.suppress(OSError):
            # Wakes the thread that accepts, which close() alone would not.
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
            self._wait_while_silent(number)
            client.close()
            return
        broker.settimeout(None)
        for one in (client, broker):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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
            # Who is cut off hears nothing of an end, either.
            self._wait_while_silent(pair.number)
            pair.close()

    def _requests(self, pair: _Pair) -> None:
        for frame in _frames(pair.client):
            key, _, correlation = _REQUEST.unpack_from(frame)
            self.requests[key] += 1
            pair.keys[correlation] = key
            self._wait_while_silent(pair.number)
            self._wait_while_held(key)
            sent = frame if self.on_request is None else self.on_request(key, frame)
            if sent is not None:
                time.sleep(self.delay)
                pair.broker.sendall(_SIZE.pack(len(sent)) + sent)

    def _responses(self, pair: _Pair) -> None:
        for frame in _frames(pair.broker):
            (correlation,) = _SIZE.unpack_from(frame)
            key = pair.keys.pop(correlation, -1)
            self._wait_while_silent(pair.number)
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
        for at in range(0, len(data), _PIECE_BYTES):
            piece = data[at : at + _PIECE_BYTES]
            time.sleep(len(piece) / self.rate)
            client.sendall(piece)

    def _wait_while_held(self, key: int) -> None:
        with self._change:
            if key in self._holding:
                self.held += 1
                self._change.wait_for(lambda: key not in self._holding)
                self.held -= 1

    def _wait_while_silent(self, number: int) -> None:
        while not self._closed and (self._black_hole or number <= self._forgotten):
            time.sleep(_LOOK_SECONDS)


def _frames(source: socket.socket) -> Iterator[bytes]:
    while True:
        (size,) = _SIZE.unpack(_exactly(source, _SIZE.size))
        yield _exactly(source, size)


def _exactly(source: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        count = source.recv_into(rest)
        if not count:
            raise EOFError
        rest = rest[count:]
    return bytes(data)
