"""
Encodes and decodes the primitive types of Kafka's protocol, in flexible and non-flexible form.

Non-flexible messages have lengths of two or four bytes. Flexible messages (KIP-482) have varints as
lengths, and tagged fields after each structure; we write no tagged fields, and skip those we read.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from uuid import UUID

from pyspark_pykafka.engines.error_codes import BAD_MESSAGE
from pyspark_pykafka.errors import KafkaClientError
from pyspark_pykafka.varint import unsigned_varint

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

#: A message's entries for partitions, grouped by topic.
ByTopic: TypeAlias = "list[tuple[str | None, list[T]]]"

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")


_UUID_BYTES = 16
_ZERO_UUID = bytes(_UUID_BYTES)
# Lengths have 32 bits, so a varint has at most five bytes, each with seven of them.
_MAX_SHIFT = 28


class Encoding:
    """
    The non-flexible form: lengths in two or four bytes, -1 for null, no tagged fields.
    """

    tags = b""

    def string(self, text: str | None) -> bytes:
        """
        Return an encoded string.
        """
        if text is None:
            return INT16.pack(-1)
        encoded = text.encode()
        return INT16.pack(len(encoded)) + encoded

    def count(self, elements: int) -> bytes:
        """
        Return the encoded number of elements, which precedes an array.
        """
        return INT32.pack(elements)

    def size(self, size: int) -> bytes:
        """
        Return the encoded length, which precedes a field of bytes.
        """
        return INT32.pack(size)

    def uuid(self, value: UUID | None) -> bytes:
        """
        Return an encoded UUID; all zeros stand for None.
        """
        return _ZERO_UUID if value is None else value.bytes


class _Flexible(Encoding):
    """
    The flexible form: lengths plus one as unsigned varints, 0 for null, tagged fields.
    """

    tags = b"\x00"

    def string(self, text: str | None) -> bytes:
        """
        Return an encoded string.
        """
        if text is None:
            return unsigned_varint(0)
        encoded = text.encode()
        return unsigned_varint(len(encoded) + 1) + encoded

    def count(self, elements: int) -> bytes:
        """
        Return the encoded number of elements, which precedes an array.
        """
        return unsigned_varint(elements + 1)

    def size(self, size: int) -> bytes:
        """
        Return the encoded length, which precedes a field of bytes.
        """
        return unsigned_varint(size + 1)


_NON_FLEXIBLE, _FLEXIBLE = Encoding(), _Flexible()


def encoding(*, flexible: bool) -> Encoding:
    """
    Return the flexible or the non-flexible form.
    """
    return _FLEXIBLE if flexible else _NON_FLEXIBLE


def single_partition(topics: ByTopic[T], response: str) -> T:
    """
    Return the entry of a response to a request for one partition.

    Raises :class:`KafkaClientError` if the response has none, or several.
    """
    entries = [entry for _, partitions in topics for entry in partitions]
    if len(entries) != 1:
        msg = f"a broker sent no valid {response} for one partition: {entries[:20]}"
        raise KafkaClientError(msg, *BAD_MESSAGE, retriable=True)
    return entries[0]


class Reader:
    """
    Decodes the values of a message, one after another.

    Methods raise :class:`IndexError`, :class:`ValueError` or :class:`struct.error` for a malformed
    message; :meth:`Frame.decode` turns these into :class:`KafkaClientError`.
    """

    __slots__ = ("_flexible", "_position", "_version", "_view")

    def __init__(self, view: bytes | memoryview, version: int, first_flexible: int) -> None:
        self._view = view
        self._version = version
        self._flexible = version >= first_flexible
        self._position = 0

    @property
    def position(self) -> int:
        """
        The number of bytes read so far.
        """
        return self._position

    def partitions_by_topic(self, read_partitions: Callable[[int], list[T]]) -> ByTopic[T]:
        """
        Return the entries for partitions, by topic, which are the last field of a message.

        ``read_partitions(count)`` reads the entries of one topic.
        """
        topics = [self._partitions_of_topic(read_partitions) for _ in range(self.count())]
        self.skip_tags()
        return topics

    def _partitions_of_topic(
        self, read_partitions: Callable[[int], list[T]]
    ) -> tuple[str | None, list[T]]:
        name = self.string()
        entries = read_partitions(self.count())
        self.skip_tags()
        return name, entries

    def boolean(self) -> bool:
        """
        Return a boolean, which is one byte.
        """
        start = self._position
        self.skip(1)
        return self._view[start] != 0

    def int16(self) -> int:
        """
        Return a signed number of two bytes.
        """
        (value,) = INT16.unpack_from(self._view, self._position)
        self._position += INT16.size
        return int(value)

    def int32(self) -> int:
        """
        Return a signed number of four bytes.
        """
        (value,) = INT32.unpack_from(self._view, self._position)
        self._position += INT32.size
        return int(value)

    def int64(self) -> int:
        """
        Return a signed number of eight bytes.
        """
        (value,) = INT64.unpack_from(self._view, self._position)
        self._position += INT64.size
        return int(value)

    def varint(self) -> int:
        """
        Return an unsigned varint of up to five bytes.
        """
        value, shift = 0, 0
        while True:
            byte = self._view[self._position]
            self._position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            if shift == _MAX_SHIFT:
                msg = f"the varint before byte {self._position} does not end"
                raise ValueError(msg)
            shift += 7

    def count(self) -> int:
        """
        Return the length of an array or of bytes; -1 for null.
        """
        return self.varint() - 1 if self._flexible else self.int32()

    def string_size(self) -> int:
        """
        Return the length of a string in bytes; -1 for null.
        """
        return self.varint() - 1 if self._flexible else self.int16()

    def string(self) -> str | None:
        """
        Return a string; None for null.
        """
        size = self.string_size()
        if size < 0:
            return None
        start = self._position
        self.skip(size)
        return str(self._view[start : self._position], "utf-8")

    def uuid(self) -> UUID | None:
        """
        Return a UUID; None for all zeros.
        """
        start = self._position
        self.skip(_UUID_BYTES)
        raw = bytes(self._view[start : self._position])
        return None if raw == _ZERO_UUID else UUID(bytes=raw)

    def expect_single(self, plural: str) -> None:
        """
        Read the length of an array, which must be 1.
        """
        self.check_single(plural, self.count())

    def check_single(self, plural: str, count: int) -> None:
        """
        Check the length of an array, which must be 1.
        """
        if count != 1:
            msg = f"it has {count} {plural}"
            raise ValueError(msg)

    def skip_string(self) -> None:
        """
        Skip a string.
        """
        self.skip(max(self.string_size(), 0))

    def skip_tags(self) -> None:
        """
        Skip the tagged fields after a structure, if the message is flexible.
        """
        if self._flexible:
            for _ in range(self.varint()):
                self.varint()
                self.skip(self.varint())

    def skip(self, size: int) -> None:
        """
        Skip ``size`` bytes.
        """
        if not 0 <= size <= len(self._view) - self._position:
            msg = f"there are no {size} bytes left at byte {self._position}"
            raise ValueError(msg)
        self._position += size
