"""
The proxy of the fault tests injects the configured faults, and no others.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from tests.support.listening import listen
from tests.support.proxy import Proxy

from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

#: A client that has no response after this time gets none.
NO_RESPONSE_SECONDS = 0.3
END_TXN, METADATA = 26, 3


class Echo:
    """
    Responds to each request with its correlation id and a body of ``size`` bytes.
    """

    def __init__(self) -> None:
        self.size = 8
        self.seen: list[bytes] = []
        self._listener = listen()
        self.address: tuple[str, int] = self._listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        # Clients that reset their connections are part of the tests.
        with client, suppress(ConnectionResetError):
            while len(head := client.recv(4, socket.MSG_WAITALL)) == 4:
                (size,) = struct.unpack(">i", head)
                frame = client.recv(size, socket.MSG_WAITALL)
                self.seen.append(frame)
                body = frame[4:8] + bytes(self.size)
                client.sendall(struct.pack(">i", len(body)) + body)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy(echo.address) as proxy:
        yield proxy


def connect(proxy: Proxy, seconds: float = 5.0) -> socket.socket:
    return socket.create_connection((proxy.host, proxy.port), seconds)


def request(key: int = METADATA, correlation: int = 7) -> bytes:
    frame = struct.pack(">hhih", key, 0, correlation, -1)
    return struct.pack(">i", len(frame)) + frame


def send_request(client: socket.socket, key: int = METADATA, seconds: float = 5.0) -> bytes:
    """
    Return the response to one request; raises TimeoutError if there is none.
    """
    client.sendall(request(key))
    return receive(client, seconds)


def receive(client: socket.socket, seconds: float = 5.0) -> bytes:
    client.settimeout(seconds)
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack(">i", data[:4])[0]:
        if not (piece := client.recv(65536)):
            raise EOFError
        data += piece
    return data[4:]


def test_forwards_frames_and_counts_requests(proxy: Proxy) -> None:
    """
    Without a fault a response arrives, and requests are counted by API key.
    """
    with connect(proxy) as client:
        assert send_request(client)[:4] == struct.pack(">i", 7)
        send_request(client, END_TXN)

    assert (proxy.requests[METADATA], proxy.requests[END_TXN], proxy.accepted) == (1, 1, 1)


def test_delays_each_direction(proxy: Proxy) -> None:
    """
    The delay applies once to the request and once to the response.
    """
    proxy.delay = 0.1
    with connect(proxy) as client:
        started = time.monotonic()
        send_request(client)

    assert time.monotonic() - started >= 0.2


def test_limits_the_rate_of_responses(proxy: Proxy, echo: Echo) -> None:
    """
    A response of 20 KB takes at least a fifth of a second at 100 KB/s.
    """
    echo.size = 20_000
    proxy.rate = 100_000
    with connect(proxy) as client:
        started = time.monotonic()
        send_request(client)

    assert time.monotonic() - started >= 0.2


def test_holds_requests_until_released(proxy: Proxy, echo: Echo) -> None:
    """
    A held request does not reach the broker before it is released; other requests do.
    """
    proxy.hold({END_TXN})
    with connect(proxy) as client, connect(proxy) as other:
        client.sendall(request(END_TXN))
        wait_until(lambda: None if proxy.held_requests else "nothing is held yet", 5)
        send_request(other)
        assert len(echo.seen) == 1
        proxy.release()
        assert receive(client)
    assert len(echo.seen) == 2


def test_drops_responses(proxy: Proxy, echo: Echo) -> None:
    """
    The broker handles the request, but its response never arrives.
    """
    proxy.drop_responses({END_TXN})
    with connect(proxy) as client:
        with pytest.raises(TimeoutError):
            send_request(client, END_TXN, NO_RESPONSE_SECONDS)
        assert len(echo.seen) == 1
        assert send_request(client)


def test_rewrites_and_drops_frames(proxy: Proxy, echo: Echo) -> None:
    """
    The frame that the hook returns is forwarded in place of the original.
    """
    proxy.on_request = lambda key, frame: None if key == END_TXN else frame + b"more"
    proxy.on_response = lambda _key, frame: frame[:4] + b"less"
    with connect(proxy) as client:
        client.sendall(request(END_TXN))
        assert send_request(client) == struct.pack(">i", 7) + b"less"

    assert [frame[-4:] for frame in echo.seen] == [b"more"]


def test_black_hole(proxy: Proxy) -> None:
    """
    Neither open nor new connections get a response until the proxy is healed.
    """
    with connect(proxy) as old:
        send_request(old)
        proxy.black_hole()
        with connect(proxy) as new:
            for client in (old, new):
                with pytest.raises(TimeoutError):
                    send_request(client, seconds=NO_RESPONSE_SECONDS)
        proxy.heal()
        with connect(proxy) as later:
            assert send_request(later)


def test_silent_connections_end_with_their_clients(proxy: Proxy) -> None:
    """
    When a client closes a connection that the proxy has forgotten, the proxy drops the connection,
    even if requests are unanswered.
    """
    with connect(proxy) as idle, connect(proxy) as waiting:
        for client in (idle, waiting):
            send_request(client)
        proxy.heal()
        waiting.sendall(request() + request())
        assert proxy.open_connections == 2

    wait_until(lambda: f"{proxy.open_connections} are open" if proxy.open_connections else None, 5)


def test_drops_syns(proxy: Proxy) -> None:
    """
    A connection attempt is neither accepted nor refused.
    """
    proxy.drop_syns()
    with pytest.raises(TimeoutError):
        connect(proxy, NO_RESPONSE_SECONDS)
    proxy.heal()
    with connect(proxy) as client:
        assert send_request(client)


def test_refuses_connections(proxy: Proxy) -> None:
    """
    New connections are refused at once; open ones continue.
    """
    with connect(proxy) as client:
        send_request(client)
        proxy.refuse_connections()
        with pytest.raises(ConnectionRefusedError):
            connect(proxy)
        assert send_request(client)


def test_forgets_connections(proxy: Proxy) -> None:
    """
    Open connections stay silent without being closed; new ones work.
    """
    with connect(proxy) as old:
        send_request(old)
        proxy.forget_connections()
        with pytest.raises(TimeoutError):
            send_request(old, seconds=NO_RESPONSE_SECONDS)
        with connect(proxy) as new:
            assert send_request(new)


@pytest.mark.parametrize(("reset", "error"), [(False, EOFError), (True, ConnectionResetError)])
def test_disconnects(proxy: Proxy, error: type[Exception], *, reset: bool) -> None:
    """
    Open connections are closed by FIN, or by RST on request.
    """
    with connect(proxy) as client:
        send_request(client)
        proxy.disconnect(reset=reset)
        with pytest.raises(error):
            receive(client)
