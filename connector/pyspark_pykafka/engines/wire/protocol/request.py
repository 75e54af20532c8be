"""
The common parts of all hand-written requests: API, versions, header and frame.

kafka-python has every message, but importing it takes a fresh worker longer than its first read. So
the messages for reading and writing are written by hand, from Kafka's schemas
(``MetadataRequest.json`` and so on). Logins use kafka-python's messages, and connections accept
both.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from pyspark_pykafka.engines.wire.protocol.primitives import INT32, Encoding, encoding

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from typing_extensions import Buffer

    class ResponseDecoder(Protocol[T_co]):
        """
        Decodes one API's responses: a :class:`ResponseSchema`, or kafka-python's response class.
        """

        @property
        def name(self) -> str:
            """
            The response's name in Kafka, such as ``FetchResponse``.
            """

        @property
        def API_KEY(self) -> int:  # noqa: N802
            """
            The API's number in Kafka.
            """

        def flexible_version_q(self, version: int) -> bool:
            """
            Return whether messages of this version are flexible (KIP-482).
            """

        def decode(self, body: memoryview, *, version: int, header: bool) -> T_co:
            """
            Return the decoded body of a response.
            """

    class KafkaPythonHeader(Protocol[T_co]):
        """
        The header of a kafka-python request.
        """

        def get_response_class(self) -> ResponseDecoder[T_co]:
            """
            Return the class that decodes the response.
            """

    class KafkaPythonRequest(Protocol[T_co]):
        """
        A request of kafka-python, which ships no type information.
        """

        @property
        def name(self) -> str:
            """
            The request's name in Kafka.
            """

        @property
        def API_VERSION(self) -> int:  # noqa: N802
            """
            The version in which the request is encoded.
            """

        @property
        def header(self) -> KafkaPythonHeader[T_co]:
            """
            The header that :meth:`with_header` has added.
            """

        def with_header(self, correlation_id: int, client_id: str) -> None:
            """
            Add the request's header.
            """

        def encode(self, *, header: bool, framed: bool) -> bytes:
            """
            Return the encoded request.
            """

        def expect_response(self) -> bool:
            """
            Return whether brokers answer the request.
            """

    class Api(Protocol):
        """
        One of Kafka's APIs: an :class:`ApiSpec`, or kafka-python's request class.
        """

        @property
        def name(self) -> str:
            """
            The request's name in Kafka, such as ``FetchRequest``.
            """

        @property
        def API_KEY(self) -> int:  # noqa: N802
            """
            The API's number in Kafka.
            """

        @property
        def valid_versions(self) -> tuple[int, int]:
            """
            The lowest and the highest version that we can use.
            """


_HEADER = struct.Struct(">hhi")
_NON_FLEXIBLE = encoding(flexible=False)


# Plain classes: defining three frozen dataclasses would take each fresh worker 1.4 ms.


class ResponseSchema(Generic[T_co]):
    """
    Decodes one API's responses; attributes are named like those of kafka-python's responses.
    """

    __slots__ = ("API_KEY", "_first_flexible", "_read", "name")

    def __init__(
        self, name: str, key: int, first_flexible: int, read: Callable[[memoryview, int], T_co]
    ) -> None:
        self.name = name
        self.API_KEY = key
        self._first_flexible = first_flexible
        self._read = read

    def flexible_version_q(self, version: int) -> bool:
        """
        Return whether messages of this version are flexible (KIP-482).
        """
        return version >= self._first_flexible

    def decode(self, body: memoryview, *, version: int, header: bool) -> T_co:
        """
        Return the decoded body of a response, whose header has been removed.
        """
        assert not header
        return self._read(body, version)


class ApiSpec(Generic[T_co]):
    """
    One of Kafka's APIs; attributes are named like those of kafka-python's requests.

    ``name`` is Kafka's, such as ``Fetch``. ``read`` decodes a response from its body and version.
    """

    __slots__ = ("API_KEY", "name", "response", "valid_versions")

    def __init__(
        self,
        name: str,
        key: int,
        versions: tuple[int, int],
        first_flexible: int,
        read: Callable[[memoryview, int], T_co],
    ) -> None:
        self.name = f"{name}Request"
        self.API_KEY = key
        self.valid_versions = versions
        self.response = ResponseSchema(f"{name}Response", key, first_flexible, read)

    def encoding(self, version: int) -> Encoding:
        """
        Return how requests of a version are encoded.
        """
        return encoding(flexible=self.response.flexible_version_q(version))


class Request(Generic[T_co]):
    """
    A request without its header; its type parameter is the type of its decoded response.

    ``payload`` is sent after the body as it is, without a copy.
    """

    __slots__ = ("api", "body", "payload", "version")

    def __init__(
        self, api: ApiSpec[T_co], version: int, body: bytes, payload: Sequence[Buffer] = ()
    ) -> None:
        self.api = api
        self.version = version
        self.body = body
        self.payload = payload

    def encode(self, correlation_id: int, client_id: str) -> bytes:
        """
        Return the framed request: its length, header, body and payload.
        """
        return b"".join(self.buffers(correlation_id, client_id))

    def buffers(self, correlation_id: int, client_id: str) -> list[Buffer]:
        """
        Return the framed request in several buffers, so that the payload is not copied.
        """
        front = (
            _HEADER.pack(self.api.API_KEY, self.version, correlation_id),
            # The client id is never flexible, in any version of the header.
            _NON_FLEXIBLE.string(client_id),
            self.api.encoding(self.version).tags,
            self.body,
        )
        size = sum(map(len, front)) + total_bytes(self.payload)
        return [b"".join((INT32.pack(size), *front)), *self.payload]


def total_bytes(buffers: Sequence[Buffer]) -> int:
    """
    Return the size of all buffers together.
    """
    return sum(memoryview(buffer).nbytes for buffer in buffers)


class EncodedRequest(NamedTuple, Generic[T]):
    """
    A framed request, ours or kafka-python's, and the decoder of its response.
    """

    name: str
    version: int
    buffers: Sequence[Buffer]
    response: ResponseDecoder[T]
    expects_response: bool = True


def encode_request(
    request: Request[T] | KafkaPythonRequest[T], correlation_id: int, client_id: str
) -> EncodedRequest[T]:
    """
    Return the framed form of a :class:`Request`, or of kafka-python's request.
    """
    if isinstance(request, Request):
        buffers = request.buffers(correlation_id, client_id)
        return EncodedRequest(request.api.name, request.version, buffers, request.api.response)
    request.with_header(correlation_id, client_id)
    content = [request.encode(header=True, framed=True)]
    return EncodedRequest(
        request.name,
        request.API_VERSION,
        content,
        request.header.get_response_class(),
        request.expect_response(),
    )
