"""
A broker on a loopback port that follows a script, for misbehaviour that real brokers do not show.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import ApiVersionsResponse, MetadataRequest, MetadataResponse
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeResponse
from tests.support.listening import listen

from pyspark_pykafka.engines.wire.network.connection import Connection
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.settings.wire_config import Address, Sasl, wire_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

METADATA, FETCH = 3, 1
RANGES = [(18, 0, 3), (METADATA, 0, 12), (FETCH, 4, 11), (17, 0, 1), (36, 0, 2)]


@dataclass
class Script:
    """
    The behaviour of a scripted broker: each request is passed to the next answer, with the socket
    and the correlation id. After the last answer the broker is silent until the test ends.
    """

    answers: list[Callable[[socket.socket, int], None]]
    requests: list[bytes] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def serve(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError), listener.accept()[0] as peer:
            for answer in self.answers:
                self.requests.append(request := read_frame(peer))
                answer(peer, struct.unpack(">i", request[4:8])[0])
            self.over.wait(30)


def read_frame(peer: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", peer.recv(4, socket.MSG_WAITALL))
    return peer.recv(size, socket.MSG_WAITALL)


def framed(correlation: int, body: bytes, *, flexible: bool = False) -> bytes:
    """
    Return a framed response; a flexible header has no tagged fields.
    """
    content = struct.pack(">i", correlation) + (b"\0" if flexible else b"") + body
    return struct.pack(">i", len(content)) + content


def responding(body: bytes, *, flexible: bool = False) -> Callable[[socket.socket, int], None]:
    return lambda peer, correlation: peer.sendall(framed(correlation, body, flexible=flexible))


def sending(raw: bytes) -> Callable[[socket.socket, int], None]:
    return lambda peer, _: peer.sendall(raw)


def disconnecting(peer: socket.socket, _: int) -> None:
    peer.close()


def silent(_: socket.socket, __: int) -> None:
    pass


def versions(error: int = 0, version: int = 3, throttle: int = 0) -> bytes:
    apis = [
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
        for key, low, high in RANGES
    ]
    response = ApiVersionsResponse(error_code=error, api_keys=apis, throttle_time_ms=throttle)
    return bytes(response.encode(version=version))


def metadata(version: int, throttle: int = 0) -> bytes:
    response = MetadataResponse(
        throttle_time_ms=throttle, brokers=[], cluster_id="c", controller_id=1, topics=[]
    )
    return bytes(response.encode(version=version))


GREETING = responding(versions())


@dataclass
class ScriptedBroker:
    """
    A script that is being served, and the way to connect to it.
    """

    script: Script
    address: Address

    def open(self, seconds: float = 5, sasl: Sasl | None = None, **settings: str) -> Connection:
        """
        Connect; settings are written with underscores for dots.
        """
        options = {name.replace("_", "."): value for name, value in settings.items()}
        if sasl is not None:
            options.update(
                {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": sasl.mechanism}
            )
            options.update({"sasl.username": sasl.username, "sasl.password": sasl.password})
        kafka = KafkaSettings.of({"bootstrap.servers": str(self.address), **options})
        return Connection.open(self.address, wire_config(kafka), Deadline.after(seconds))


def handshake(error: int = 0, *mechanisms: str) -> Callable[[socket.socket, int], None]:
    response = SaslHandshakeResponse(error_code=error, mechanisms=list(mechanisms))
    return responding(bytes(response.encode(version=1)))


def authenticated(
    error: int = 0, message: str | None = None, data: bytes = b"", lifetime: int = 0
) -> Callable[[socket.socket, int], None]:
    response = SaslAuthenticateResponse(
        error_code=error, error_message=message, auth_bytes=data, session_lifetime_ms=lifetime
    )
    return responding(bytes(response.encode(version=2)), flexible=True)


def metadata_request(version: int = 1) -> Any:
    return MetadataRequest(topics=None, version=version)


def fetch_request() -> Any:
    return FetchRequest(replica_id=-1, topics=[], version=4)


def soon(seconds: float = 5) -> Deadline:
    return Deadline.after(seconds)


@contextlib.contextmanager
def scripted_brokers() -> Iterator[Callable[..., ScriptedBroker]]:
    """
    Yield a function that starts a broker with these answers; all brokers stop at the end.
    """
    with contextlib.ExitStack() as cleanup:

        def start(*answers: Callable[[socket.socket, int], None]) -> ScriptedBroker:
            listener = cleanup.enter_context(listen())
            script = Script(list(answers))
            thread = threading.Thread(target=script.serve, args=(listener,), daemon=True)
            cleanup.callback(thread.join, 5)
            cleanup.callback(script.over.set)
            cleanup.callback(listener.shutdown, socket.SHUT_RDWR)
            thread.start()
            return ScriptedBroker(script, Address(*listener.getsockname()))

        yield start
