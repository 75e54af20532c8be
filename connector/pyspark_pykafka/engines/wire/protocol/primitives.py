"""
The values that Kafka's messages are made of, written and read in both of their forms.

Plain messages have lengths of two or four bytes. Flexible ones (KIP-482) have varints, and tagged
fields behind each structure, of which we write none and skip all.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from uuid import UUID

from pyspark_pykafka.errors import KafkaClientError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

#: What a message says of each partition, by topic.
ByTopic: TypeAlias = "list[tuple[str | None, list[T]]]"

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")

_BAD_MESSAGE = (-199, "_BAD_MSG")

_UUID_BYTES = 16
_NO_UUID = bytes(_UUID_BYTES)
# Five bytes hold 35 bits; lengths have 32.
_MOST_SHIFT = 28


class Encoding:
    """
    Lengths in two or four bytes, -1 for null, no tagged fields.
    """

    tags = b""

    def string(self, text: str | None) -> bytes:
        """
        Return a text as it is sent.
        """
        if text is None:
            return INT16.pack(-1)
        encoded = text.encode()
        return INT16.pack(len(encoded)) + encoded

    def count(self, elements: int) -> bytes:
        """
        Return what stands before so many elements of an array.
        """
        return INT32.pack(elements)

    def size(self, size: int) -> bytes:
        """
        Return what stands before so many bytes.
        """
        return INT32.pack(size)

    def uuid(self, value: UUID | None) -> bytes:
        """
        Return a UUID as it is sent; zeros are none.
        """
        return _NO_UUID if value is None else value.bytes


class _Flexible(Encoding):
    """
    Lengths as unsigned varints of one more, 0 for null, tagged fields behind each structure.
    """

    tags = b"\x00"

    def string(self, text: str | None) -> bytes:
        """
        Return a text as it is sent.
        """
        if text is None:
            return varint(0)
        encoded = text.encode()
        return varint(len(encoded) + 1) + encoded

    def count(self, elements: int) -> bytes:
        """
        Return what stands before so many elements of an array.
        """
        return varint(elements + 1)

    def size(self, size: int) -> bytes:
        """
        Return what stands before so many bytes.
        """
        return varint(size + 1)


_NON_FLEXIBLE, _FLEXIBLE = Encoding(), _Flexible()


def encoding(*, flexible: bool) -> Encoding:
    """
    Return how a message in one of the two forms is written.
    """
    return _FLEXIBLE if flexible else _NON_FLEXIBLE


def varint(value: int) -> bytes:
    """
    Return a number of seven bits a byte, the lowest first.
    """
    if value < 0x80:
        return bytes((value,))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def single_partition(topics: ByTopic[T], response: str) -> T:
    """
    Return the answer of the one partition that was asked for.

    Raises :class:`KafkaClientError` if it is not the answer of one.
    """
    found = [one for _, partitions in topics for one in partitions]
    if len(found) != 1:
        msg = f"a broker's answer is no {response} for one partition: {found[:20]}"
        raise KafkaClientError(msg, *_BAD_MESSAGE, retriable=True)
    return found[0]


class Reader:
    """
    Takes one value after another from a message.

    Raises :class:`IndexError`, :class:`ValueError` or :class:`struct.error` where it does not hold
    what is asked for; :meth:`Frame.decode` names those.
    """

    __slots__ = ("_at", "_flexible", "_version", "_view")

    def __init__(self, view: bytes | memoryview, version: int, first_flexible: int) -> None:
        self._view = view
        self._version = version
        self._flexible = version >= first_flexible
        self._at = 0

    @property
    def at(self) -> int:
        """
        How many bytes have been taken.
        """
        return self._at

    def by_topic(self, partitions: Callable[[int], list[T]]) -> ByTopic[T]:
        """
        Return what a message ends with for each topic; ``partitions`` takes so many of one.
        """
        topics = [self._partitions_of_topic(partitions) for _ in range(self.count())]
        self.skip_tags()
        return topics

    def _partitions_of_topic(
        self, partitions: Callable[[int], list[T]]
    ) -> tuple[str | None, list[T]]:
        name = self.text()
        found = partitions(self.count())
        self.skip_tags()
        return name, found

    def boolean(self) -> bool:
        """
        Return what one byte says.
        """
        start = self._at
        self.skip(1)
        return self._view[start] != 0

    def int16(self) -> int:
        """
        Return a number of two bytes.
        """
        (value,) = INT16.unpack_from(self._view, self._at)
        self._at += INT16.size
        return int(value)

    def int32(self) -> int:
        """
        Return a number of four bytes.
        """
        (value,) = INT32.unpack_from(self._view, self._at)
        self._at += INT32.size
        return int(value)

    def int64(self) -> int:
        """
        Return a number of eight bytes.
        """
        (value,) = INT64.unpack_from(self._view, self._at)
        self._at += INT64.size
        return int(value)

    def varint(self) -> int:
        """
        Return an unsigned number of up to five bytes.
        """
        value, shift = 0, 0
        while True:
            byte = self._view[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            if shift == _MOST_SHIFT:
                msg = f"the number before byte {self._at} does not end"
                raise ValueError(msg)
            shift += 7

    def count(self) -> int:
        """
        Return the size of an array, or of bytes; -1 for null.
        """
        return self.varint() - 1 if self._flexible else self.int32()

    def text_size(self) -> int:
        """
        Return how many bytes a text has; -1 for null.
        """
        return self.varint() - 1 if self._flexible else self.int16()

    def text(self) -> str | None:
        """
        Return a text; None for null.
        """
        size = self.text_size()
        if size < 0:
            return None
        start = self._at
        self.skip(size)
        return str(self._view[start : self._at], "utf-8")

    def uuid(self) -> UUID | None:
        """
        Return a UUID; zeros are none.
        """
        start = self._at
        self.skip(_UUID_BYTES)
        found = bytes(self._view[start : self._at])
        return None if found == _NO_UUID else UUID(bytes=found)

    def expect_one(self, what: str) -> None:
        """
        Read the size of an array that must have one element.
        """
        count = self.count()
        if count != 1:
            msg = f"it has {count} {what}"
            raise ValueError(msg)

    def skip_text(self) -> None:
        """
        Leave a text out.
        """
        self.skip(max(self.text_size(), 0))

    def skip_tags(self) -> None:
        """
        Leave out the tagged fields behind a structure, where the form has them.
        """
        if self._flexible:
            for _ in range(self.varint()):
                self.varint()
                self.skip(self.varint())

    def skip(self, size: int) -> None:
        """
        Leave so many bytes out.
        """
        if not 0 <= size <= len(self._view) - self._at:
            msg = f"{size} bytes do not follow at byte {self._at}"
            raise ValueError(msg)
        self._at += size
