"""
The wire engine's connection, against a scripted broker that misbehaves as real brokers cannot.
"""

from __future__ import annotations

import base64
import json
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataResponse
from kafka.protocol.sasl import SaslHandshakeResponse
from tests.support.listening import listen, unused_address
from tests.support.scripted_broker import (
    GREETING,
    METADATA,
    Script,
    ScriptedBroker,
    authenticated,
    disconnecting,
    fetch_request,
    framed,
    handshake,
    metadata,
    metadata_request,
    responding,
    sending,
    silent,
    soon,
    versions,
)

from pyspark_pykafka.engines.wire.network.sasl import Login, unsecured_jwt
from pyspark_pykafka.engines.wire.protocol.frames import FrameBuffer
from pyspark_pykafka.engines.wire.protocol.produce import PRODUCE
from pyspark_pykafka.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    KafkaClientError,
    TimeoutExceededError,
    TlsError,
)
from pyspark_pykafka.settings.unsecured_token import UnsecuredToken
from pyspark_pykafka.settings.wire_config import Address, Sasl

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_request_gets_its_response(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    A request gets its response, with the old form of header and with the flexible one.
    """
    broker = scripted(GREETING, responding(metadata(1)), responding(metadata(12), flexible=True))
    connection = broker.open()

    assert connection.request(metadata_request(1), soon()).controller_id == 1
    assert connection.request(metadata_request(12), soon()).cluster_id == "c"
    assert b"pyspark-pykafka" in broker.script.requests[0]
    assert b"pykafka" in broker.script.requests[1]


def test_tagged_fields_of_a_header_are_skipped(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    Fields that a newer broker adds to the header do not get into the body.
    """
    tags = b"\x02" + b"\x00\x03abc" + b"\x81\x01\x80\x01" + bytes(128)
    connection = scripted(GREETING, responding(tags + metadata(12))).open()

    assert connection.request(metadata_request(12), soon()).cluster_id == "c"


def test_requests_are_pipelined(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    Two requests in flight get their responses in order, and are counted until then.
    """
    connection = scripted(GREETING, responding(metadata(1)), responding(metadata(8))).open()
    older = connection.send(metadata_request(1), soon())
    newer = connection.send(metadata_request(8), soon())

    assert connection.in_flight == 2
    assert connection.receive_frame(soon()).decode_as(older).API_VERSION == 1
    assert connection.receive_frame(soon()).decode_as(newer).API_VERSION == 8
    assert connection.in_flight == 0


def test_a_frame_is_the_undecoded_body(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    An undecoded response is in the connection's buffer, without its header.
    """
    connection = scripted(GREETING, responding(metadata(12), flexible=True)).open()
    schema = connection.send(metadata_request(12), soon())
    frame = connection.receive_frame(soon())

    assert (bytes(frame.body), frame.version) == (metadata(12), 12)
    assert frame.schema.API_KEY == METADATA
    assert frame.decode_as(schema).cluster_id == "c"


def test_receiving_without_a_request_is_an_error(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    Receiving without a request is a programming error, and is reported without waiting.
    """
    connection = scripted(GREETING).open()

    with pytest.raises(ValueError, match="send a request first"):
        connection.receive_frame(soon()).decode()


def test_response_of_another_api_is_an_error(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    Receiving a response as one of another API is a programming error, and does not wait.
    """
    connection = scripted(GREETING, silent).open()
    connection.send(metadata_request(1), soon())

    with pytest.raises(ValueError, match="is Metadata, not ProduceRequest"):
        connection.receive(PRODUCE, soon())


def test_highest_common_version_is_chosen(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    The broker, the schemas and the caller each limit the version.
    """
    connection = scripted(GREETING).open()

    assert connection.version(FetchRequest, 17) == 11
    assert connection.version(FetchRequest, 7) == 7
    with pytest.raises(KafkaClientError, match="the broker supports 4 to 11, this engine 4 to 3"):
        connection.version(FetchRequest, 3)


def test_api_that_a_broker_lacks_is_named(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    If ApiVersions does not list an API, the error names the API and is not retriable.
    """
    from kafka.protocol.producer import ProduceRequest

    connection = scripted(GREETING).open()

    with pytest.raises(
        KafkaClientError, match="ProduceRequest: the broker supports none"
    ) as caught:
        connection.version(ProduceRequest, 9)
    assert not caught.value.retriable


def test_an_old_broker_gets_the_oldest_api_versions_request(
    scripted: Callable[..., ScriptedBroker],
) -> None:
    """
    A broker that rejects our ApiVersions version gets version 0.
    """
    broker = scripted(
        responding(versions(35, 0)), responding(versions(0, 0)), responding(metadata(1))
    )

    assert broker.open().request(metadata_request(1), soon()).controller_id == 1
    requested = [struct.unpack(">hh", request[:4]) for request in broker.script.requests]
    assert requested == [(18, 3), (18, 0), (METADATA, 1)]


def test_a_wrong_correlation_id_closes_the_connection(
    scripted: Callable[..., ScriptedBroker],
) -> None:
    """
    A response to another request is never accepted.
    """
    connection = scripted(GREETING, sending(framed(77, metadata(1)))).open()

    with pytest.raises(BrokerUnavailableError, match="response 77 came for request 2"):
        connection.request(metadata_request(1), soon())
    assert not connection.is_usable
    assert connection.in_flight == 0


def test_a_truncated_response_is_an_outage(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    A broker that dies during a response is unavailable, and the error has no misleading hint.
    """

    def dying(peer: socket.socket, correlation: int) -> None:
        peer.sendall(framed(correlation, metadata(1))[:-3])
        peer.close()

    connection = scripted(GREETING, responding(metadata(1)), dying).open()
    connection.request(metadata_request(1), soon())

    with pytest.raises(BrokerUnavailableError, match="the connection ended during Metadata$"):
        connection.request(metadata_request(1), soon())


def test_a_huge_response_names_the_setting(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    A response beyond the limit is rejected before memory is allocated.
    """
    connection = scripted(GREETING, sending(struct.pack(">i", 2**31 - 1))).open()

    with pytest.raises(KafkaClientError, match="kafka.receive.message.max.bytes") as caught:
        connection.request(metadata_request(1), soon())
    assert not caught.value.retriable


@pytest.mark.parametrize("size", [-1, 0, 3])
def test_an_invalid_size_is_an_error(scripted: Callable[..., ScriptedBroker], size: int) -> None:
    """
    A response that is too small for its header comes from no Kafka broker.
    """
    connection = scripted(GREETING, sending(struct.pack(">i", size))).open()

    with pytest.raises(KafkaClientError, match=f"the response has {size} bytes; is this a Kafka"):
        connection.request(metadata_request(1), soon())


def test_tls_listener_is_recognised(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    A TLS listener is recognised by the alert that it sends in response to a plaintext request.
    """
    broker = scripted(sending(b"\x15\x03\x03\x00\x02\x02\x50"))

    with pytest.raises(TlsError, match="is it a TLS listener"):
        broker.open()


def test_plaintext_listener_is_recognised() -> None:
    """
    A server that responds to TLS in plaintext is not mistaken for an untrusted certificate.
    """

    def talking(listener: socket.socket) -> None:
        with listener.accept()[0] as peer:
            peer.recv(1)
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with listen() as listener:
        thread = threading.Thread(target=talking, args=(listener,), daemon=True)
        thread.start()
        broker = ScriptedBroker(Script([]), Address(*listener.getsockname()))
        with pytest.raises(TlsError, match="is it a TLS listener"):
            broker.open(security_protocol="ssl")
        thread.join(5)


def test_silence_ends_at_the_deadline(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    A broker that accepts requests and never responds costs no more than the deadline.
    """
    connection = scripted(GREETING, silent).open()
    started_at = time.monotonic()

    with pytest.raises(TimeoutExceededError, match="Metadata timed out"):
        connection.request(metadata_request(1), soon(0.3))
    assert time.monotonic() - started_at > 0.25
    assert not connection.is_usable


def test_slow_bytes_do_not_extend_the_deadline(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    A response that arrives byte by byte does not restart the timeout with each byte.
    """
    over = threading.Event()
    sent = bytearray()

    def dripping(peer: socket.socket, correlation: int) -> None:
        for byte in framed(correlation, bytes(1000)):
            peer.sendall(bytes([byte]))
            sent.append(byte)
            if over.wait(0.02):
                return

    connection = scripted(GREETING, dripping).open()

    with pytest.raises(TimeoutExceededError, match="Metadata timed out"):
        connection.request(metadata_request(1), soon(0.4))
    over.set()
    assert 0 < len(sent) < 500


def test_settings_limit_each_request(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    One request waits no longer than kafka.socket.timeout.ms, whatever the deadline.
    """
    broker = scripted(GREETING, silent)
    connection = broker.open(socket_timeout_ms="1200", fetch_wait_max_ms="10")
    started_at, deadline = time.monotonic(), soon(600)

    with pytest.raises(TimeoutExceededError, match="Metadata timed out"):
        connection.request(metadata_request(1), deadline)
    assert time.monotonic() - started_at > 1.1
    assert not deadline.expired


def test_setup_is_limited(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    A listener that accepts and never responds blocks a worker only until the setup timeout.
    """
    # The deadline is longer than a test may take.
    with pytest.raises(TimeoutExceededError, match="ApiVersions timed out"):
        scripted(silent).open(seconds=600, socket_connection_setup_timeout_ms="1000")


def test_a_refused_connection_names_the_broker() -> None:
    """
    The error names the broker's address and the reason.
    """
    free = Address(*unused_address())

    with pytest.raises(BrokerUnavailableError, match=f"{free}: connecting failed: .*refused"):
        ScriptedBroker(Script([]), free).open()


def test_every_address_of_a_name_is_tried(
    scripted: Callable[..., ScriptedBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A host name with a dead and a live address leads to the live one.
    """
    broker = scripted(GREETING)
    dead = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1))
    live = (*dead[:4], tuple(broker.address))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [dead, live])

    assert broker.open().is_usable


def test_an_unknown_host_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The error for a misspelt host name says that the name cannot be resolved, not that the broker is
    down.
    """

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)

    with pytest.raises(
        BrokerUnavailableError, match="brocker:9092: the host name cannot be resolved"
    ):
        ScriptedBroker(Script([]), Address("brocker", 9092)).open()


def test_a_dns_server_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A lookup cannot be interrupted, but does not block beyond the deadline.
    """
    over = threading.Event()

    def hanging(*_: object, flags: int = 0) -> None:
        if not flags:
            over.wait(30)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", hanging)

    with pytest.raises(TimeoutExceededError, match="lookup of its host name"):
        ScriptedBroker(Script([]), Address("broker", 9092)).open(seconds=0.2)
    over.set()


def test_unknown_server_error_in_api_versions_is_retriable(
    scripted: Callable[..., ScriptedBroker],
) -> None:
    """
    UNKNOWN_SERVER_ERROR is a retriable error: Java's clients close the connection and try again.
    """
    broker = scripted(responding(versions(-1)))
    with pytest.raises(KafkaClientError, match="negotiating API versions") as raised:
        broker.open()
    assert raised.value.retriable


def test_a_throttled_connection_waits(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    After a response with a throttle time nothing is sent until it has passed (KIP-219).
    """
    connection = scripted(
        GREETING, responding(metadata(6, throttle=300)), responding(metadata(6))
    ).open()
    started_at = time.monotonic()
    connection.request(metadata_request(6), soon())
    throttled_until = connection.throttled_until

    assert started_at + 0.3 <= throttled_until <= time.monotonic() + 0.3
    connection.request(metadata_request(6), soon())
    assert time.monotonic() >= throttled_until


def test_a_throttle_time_beyond_the_deadline_is_an_error(
    scripted: Callable[..., ScriptedBroker],
) -> None:
    """
    The error is raised long before the deadline, and the connection stays usable.
    """
    connection = scripted(GREETING, responding(metadata(6, throttle=60_000))).open()
    connection.request(metadata_request(6), soon())
    deadline = soon(30)

    with pytest.raises(TimeoutExceededError, match="throttles this client for another"):
        connection.request(metadata_request(6), deadline)
    assert deadline.remaining() > 15
    assert connection.is_usable


def test_old_versions_are_throttled_by_the_broker(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    Brokers delay responses in old versions themselves, so the client does not wait again.
    """
    connection = scripted(GREETING, responding(metadata(5, throttle=60_000))).open()
    connection.request(metadata_request(5), soon())

    assert connection.throttled_until == 0


def test_raw_fetches_are_throttled_too(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    The throttle time is also read from a response that the connection does not decode.
    """
    response = FetchResponse(throttle_time_ms=60_000, error_code=0, session_id=0, responses=[])
    connection = scripted(GREETING, responding(bytes(response.encode(version=11)))).open()
    request = FetchRequest(
        replica_id=-1, max_wait_ms=1, min_bytes=1, topics=[], rack_id="", version=11
    )
    connection.send(request, soon())
    connection.receive_frame(soon())

    assert connection.throttled_until - time.monotonic() > 50


def test_a_header_with_too_many_tags(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    Tagged fields that claim more than the frame holds are an error, not a read beyond it.
    """
    for tags in (b"\x01\x00\x7f", b"\x05", b"\xff\xff\xff\xff\x0f"):
        connection = scripted(GREETING, responding(tags)).open()
        with pytest.raises(KafkaClientError, match="header of a response does not end"):
            connection.request(metadata_request(12), soon())
        assert not connection.is_usable


def test_a_response_that_cannot_be_decoded(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    The error names the type of the response, and the connection is closed.
    """
    connection = scripted(GREETING, responding(b"\xff" * 9)).open()

    with pytest.raises(KafkaClientError, match="no valid MetadataResponse"):
        connection.request(metadata_request(1), soon())
    assert not connection.is_usable


def test_closed_connection_is_noticed(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    A connection that the broker closed while it was idle is not used again.
    """
    connection = scripted(GREETING, disconnecting).open()
    was_usable = connection.is_usable
    connection.send(metadata_request(1), soon())
    with pytest.raises(BrokerUnavailableError, match="does the listener require a login"):
        connection.receive_frame(soon()).decode()

    assert (was_usable, connection.is_usable) == (True, False)
    with pytest.raises(BrokerUnavailableError, match="the connection ended"):
        connection.send(metadata_request(1), soon())


def test_an_idle_connection_expires(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    A connection that was idle beyond kafka.connections.max.idle.ms is not used again.
    """
    connection = scripted(GREETING).open(connections_max_idle_ms="30")
    deadline = soon()
    while connection.is_usable and not deadline.expired:
        time.sleep(0.01)

    assert not connection.is_usable


def test_the_frame_buffer_is_reused() -> None:
    """
    Consecutive frames share memory, which grows, and shrinks after several small ones.
    """
    buffer = FrameBuffer()
    large = 64 * 1024 * 1024
    first = buffer.reserve(large)
    first[0] = 7
    del first
    reused = buffer.reserve(large - 5)

    assert (reused[0], len(reused)) == (7, large - 5)
    del reused
    sizes = [memoryview(buffer.reserve(100).obj).nbytes for _ in range(20)]
    assert sizes[0] == large
    assert sizes[-1] == 100


def test_memory_in_use_is_not_reused() -> None:
    """
    While any view of a frame exists, the next frame gets other memory.
    """
    buffer = FrameBuffer()
    frame = buffer.reserve(1000)
    part = frame[400:401]
    part[0] = 7
    del frame

    other = buffer.reserve(1000)
    other[:] = bytes(1000)

    assert part[0] == 7
    assert other.obj is not part.obj


PLAIN = Sasl("PLAIN", "alice", "geheim")


def test_a_broker_that_closes_during_login_is_unavailable(
    scripted: Callable[..., ScriptedBroker],
) -> None:
    """
    A connection that ends during the login is an outage: the next attempt may succeed.
    """
    broker = scripted(GREETING, handshake(), disconnecting)

    with pytest.raises(BrokerUnavailableError, match="without answering the login"):
        broker.open(sasl=PLAIN)


def test_a_rejected_login_hides_the_password(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    A password that the broker repeats in its error message is masked in ours.
    """
    broker = scripted(GREETING, handshake(), authenticated(58, "alice:geheim is wrong"))

    with pytest.raises(AuthenticationError, match=r"alice:\*{8} is wrong") as caught:
        broker.open(sasl=PLAIN)
    assert "geheim" not in str(caught.value)


def test_an_unsupported_mechanism(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    The error lists the mechanisms that the listener offers.
    """
    broker = scripted(GREETING, handshake(33, "SCRAM-SHA-256", "GSSAPI"))

    with pytest.raises(AuthenticationError, match="it offers: GSSAPI, SCRAM-SHA-256"):
        broker.open(sasl=PLAIN)


@pytest.mark.parametrize("data", [b"", b"r=other,s=AA==,i=4096", b"\xff", b"r=x,s=AA==,i=99999999"])
def test_a_broker_that_does_not_know_the_password(
    scripted: Callable[..., ScriptedBroker], data: bytes
) -> None:
    """
    In SCRAM the broker proves that it knows the password, too; otherwise the login fails.
    """
    broker = scripted(GREETING, handshake(), authenticated(data=data))

    with pytest.raises(AuthenticationError, match="does not prove that it knows the password"):
        broker.open(sasl=Sasl("SCRAM-SHA-256", "alice", "geheim"))


def test_a_login_is_renewed_before_it_expires(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    A login is renewed on the same connection, when nothing is in flight (KIP-368).
    """
    login = [handshake(), authenticated(lifetime=1000)]
    broker = scripted(GREETING, *login, responding(metadata(1)), *login, responding(metadata(1)))
    connection = broker.open(sasl=PLAIN)
    connection.request(metadata_request(1), soon())
    deadline = soon()
    while time.monotonic() < connection._login.due_at and not deadline.expired:
        time.sleep(0.05)
    connection.request(metadata_request(1), soon())

    keys = [struct.unpack(">h", request[:2])[0] for request in broker.script.requests]
    assert keys == [18, 17, 36, METADATA, 17, 36, METADATA]


FETCHED = bytes(range(256)) * 4


@pytest.mark.parametrize("padding", [20, 76, 83, 130, 200])
def test_a_renewed_login_does_not_overwrite_a_frame(
    scripted: Callable[..., ScriptedBroker], padding: int
) -> None:
    """
    Login responses of any size do not overwrite a Fetch response that is still in use.
    """
    offered = ["M" * padding]
    renewed = [handshake(0, *offered), authenticated(message="m" * padding, lifetime=1000)]
    login = [handshake(), authenticated(lifetime=1000)]
    broker = scripted(GREETING, *login, responding(FETCHED), *renewed, responding(FETCHED[::-1]))
    connection = broker.open(sasl=PLAIN)
    connection.send(fetch_request(), soon())
    frame = connection.receive_frame(soon())

    connection._login.due_at = 0
    connection.send(fetch_request(), soon())

    assert bytes(frame.body) == FETCHED
    assert bytes(connection.receive_frame(soon()).body) == FETCHED[::-1]
    assert bytes(frame.body) == FETCHED


def test_other_responses_do_not_overwrite_a_frame(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    A response of another type on the same connection does not overwrite a frame in use.
    """
    connection = scripted(GREETING, responding(FETCHED), responding(metadata(1))).open()
    connection.send(fetch_request(), soon())
    frame = connection.receive_frame(soon())

    connection.request(metadata_request(1), soon())

    assert bytes(frame.body) == FETCHED


def test_consecutive_fetches_share_memory(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    A frame without views makes room for the next: a long read causes no page faults.
    """
    connection = scripted(GREETING, *[responding(FETCHED)] * 5).open()
    buffers = set()
    for _ in range(5):
        connection.send(fetch_request(), soon())
        buffers.add(id(connection.receive_frame(soon()).body.obj))

    assert len(buffers) == 1


def test_a_failed_renewal_closes_the_connection(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    A rejected renewal, for example after credentials were revoked, is an error and closes the
    connection.
    """
    login = [handshake(), authenticated(lifetime=1000)]
    broker = scripted(GREETING, *login, handshake(), authenticated(58, "gone"))
    connection = broker.open(sasl=PLAIN)
    connection._login.due_at = 0

    with pytest.raises(AuthenticationError, match="the broker's message: gone"):
        connection.request(metadata_request(1), soon())
    assert not connection.is_usable


def test_scram_user_names_are_escaped() -> None:
    """
    The separators of a SCRAM message do not end the user's name.
    """
    user_names: list[Any] = []

    def send_and_receive(request: Any) -> Any:
        user_names.append(request)
        if len(user_names) > 1:
            msg = "enough"
            raise BrokerUnavailableError(msg)
        return SaslHandshakeResponse(error_code=0, mechanisms=[])

    login = Login(Sasl("SCRAM-SHA-256", "a=b,c", "geheim"), Address("one", 1))
    with pytest.raises(BrokerUnavailableError, match="enough"):
        login.run(send_and_receive, 2)

    assert user_names[1].auth_bytes.startswith(b"n,,n=a=3Db=2Cc,r=")


def test_unsecured_token_is_a_jwt() -> None:
    """
    The generated token has the parts that a broker reads, and no signature.
    """
    token = UnsecuredToken("alice", "azp", ("read", "write"), "roles", 60)
    header, claims, signature = unsecured_jwt(token, 1_000_000.5).split(".")

    def parsed(part: str) -> Any:
        return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))

    assert (parsed(header), signature) == ({"alg": "none"}, "")
    assert parsed(claims) == {
        "azp": "alice",
        "iat": 1_000_000.5,
        "exp": 1_000_060.5,
        "roles": ["read", "write"],
    }


def test_api_versions_never_has_a_flexible_header() -> None:
    """
    The broker cannot know our version when it answers the first request, so the response always has
    the old header.
    """
    from pyspark_pykafka.engines.wire.protocol.frames import has_flexible_header

    assert not has_flexible_header(ApiVersionsResponse, 3)
    assert has_flexible_header(MetadataResponse, 12)
    assert ApiVersionsRequest.flexible_version_q(3)
