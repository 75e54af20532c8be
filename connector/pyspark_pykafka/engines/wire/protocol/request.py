"""
What the messages of our own to a broker have in common: their versions, header and frame.

kafka-python has every message, but importing it takes a fresh worker longer than its first read. So
those of reading and writing are laid out by hand, after Kafka's schemas (``MetadataRequest.json``
and so on); those of logins are kafka-python's, and connections take both.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_pykafka.engines.wire.protocol.primitives import INT32, Encoding, layout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Buffer

_HEADER = struct.Struct(">hhi")
_PLAIN = layout(flexible=False)


class Answer(NamedTuple):
    """
    How one API's answers are read; its names are those of kafka-python's classes of responses.
    """

    name: str
    API_KEY: int
    first_flexible: int
    read: Callable[[memoryview, int], Any]

    def flexible_version_q(self, version: int) -> bool:
        """
        Return whether messages of this version are flexible.
        """
        return version >= self.first_flexible

    def decode(self, body: memoryview, *, version: int, header: bool) -> Any:
        """
        Return what the body of an answer says, without its header.
        """
        assert not header
        return self.read(body, version)


class ApiSpec(NamedTuple):
    """
    One of Kafka's APIs as we know it; its names are those of kafka-python's classes of requests.
    """

    name: str
    API_KEY: int
    valid_versions: tuple[int, int]
    answer: Answer

    @classmethod
    def of(
        cls,
        name: str,
        key: int,
        versions: tuple[int, int],
        first_flexible: int,
        read: Callable[[memoryview, int], Any],
    ) -> ApiSpec:
        """
        Return an API by its name in Kafka; ``read`` takes an answer's body and version.
        """
        answer = Answer(f"{name}Response", key, first_flexible, read)
        return cls(f"{name}Request", key, versions, answer)

    def layout(self, version: int) -> Encoding:
        """
        Return how requests of a version are written.
        """
        return layout(flexible=self.answer.flexible_version_q(version))


class Request(NamedTuple):
    """
    One request: all of it but what its connection adds.

    ``rest`` goes out behind the body as it is, without a copy.
    """

    api: ApiSpec
    version: int
    body: bytes
    rest: Sequence[Buffer] = ()

    def encode(self, correlation: int, client_id: str) -> bytes:
        """
        Return the request as it is sent, its length before it.
        """
        return b"".join(self.pieces(correlation, client_id))

    def pieces(self, correlation: int, client_id: str) -> list[Buffer]:
        """
        Return the same without putting the rest behind what is before it.
        """
        front = (
            _HEADER.pack(self.api.API_KEY, self.version, correlation),
            # The client's id has the old form in every version of the header.
            _PLAIN.string(client_id),
            self.api.layout(self.version).tags,
            self.body,
        )
        size = sum(map(len, front)) + bytes_of(self.rest)
        return [b"".join((INT32.pack(size), *front)), *self.rest]


def bytes_of(pieces: Sequence[Buffer]) -> int:
    """
    Return how many bytes they have together.
    """
    return sum(memoryview(piece).nbytes for piece in pieces)


class Encoded(NamedTuple):
    """
    A request of either kind as it is sent, in one piece or in several, and what reads its answer.
    """

    name: str
    version: int
    pieces: Sequence[Buffer]
    answer: Any
    is_answered: bool = True


def encoded(request: Any, correlation: int, client_id: str) -> Encoded:
    """
    Return a request of ours or of kafka-python's as it is sent.
    """
    if isinstance(request, Request):
        pieces = request.pieces(correlation, client_id)
        return Encoded(request.api.name, request.version, pieces, request.api.answer)
    request.with_header(correlation, client_id)
    content = [request.encode(header=True, framed=True)]
    return Encoded(
        request.name,
        request.API_VERSION,
        content,
        request.header.get_response_class(),
        request.expect_response(),
    )
