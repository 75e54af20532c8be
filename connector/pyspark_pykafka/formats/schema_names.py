"""
Maps the schema ids in records' headers to keys for the compiled decoders.

Confluent's serializers can put a GUID into the header ``__value_schema_id`` (the byte 1 and 16
bytes). Apicurio's serializers can put an id into ``apicurio.value.globalId`` or ``.contentId`` (8
bytes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: The number of names that a task caches; one more empties the cache.
MAX_NAMES = 10_000

#: Apicurio's headers with the name of a Protobuf message.
MESSAGE_HEADERS = {"value": "apicurio.protobuf.type", "key": "apicurio.protobuf.type.key"}
# A longer name of a message, or more bytes of message indexes, makes a record bad: both are cached
# as parts of schema names.
_MAX_MESSAGE_BYTES = 1000
_MAX_PATH_BYTES = 100
_GUID_VERSION = 1
_GUID_BYTES = 17


def header_names(column: str) -> tuple[str, str, str]:
    """
    Return the headers that may name the schema of ``key`` or ``value``, Confluent's first.
    """
    apicurio = f"apicurio.{column}"
    return f"__{column}_schema_id", f"{apicurio}.globalId", f"{apicurio}.contentId"


def without_nulls(lists: pa.Array) -> pa.ListArray:
    """
    Return the lists with empty lists in place of nulls, and without values that are in no list.

    In Arrow, a list that is null may have content. :meth:`pyarrow.ListArray.flatten` leaves it out,
    but :func:`pyarrow.compute.list_parent_indices` counts it.
    """
    # Imported here because each import delays the start of a task.
    import pyarrow.compute as pc

    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(lists), 0))
    starts = pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])
    return pa.ListArray.from_arrays(starts, lists.flatten())


class SchemaName(NamedTuple):
    """
    A reference to a schema: ``kind`` is ``id``, ``guid``, ``globalId``, ``contentId`` or
    ``invalid``.

    ``path`` has the indexes of a Protobuf message in the schema, if the header has them, and
    ``message`` its name without the package, if another header has it.
    """

    kind: str
    value: int | str
    path: tuple[int, ...] = ()
    message: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.value}"


_WITHOUT_INDEX = SchemaName("invalid", "a header __..._schema_id without a message index")


class SchemaNames:
    """
    The schema names in the headers for one column, ``key`` or ``value``, and their keys.

    The key of an id that precedes a value is the id itself; the keys of other names are negative.
    With ``has_paths`` the path of a Protobuf message follows a GUID.
    """

    def __init__(self, column: str, *, has_paths: bool = False) -> None:
        guid, global_id, content_id = header_names(column)
        self._headers: dict[str, Callable[[bytes | None], SchemaName]] = {
            guid: _guid_and_path if has_paths else _guid,
            global_id: lambda value: _number("globalId", value),
            content_id: lambda value: _number("contentId", value),
        }
        self._message_header = MESSAGE_HEADERS[column] if has_paths else ""
        self._keys: dict[SchemaName, int] = {}
        self._names: dict[int, SchemaName] = {}
        self._next = -1
        self._last: tuple[pa.Array | None, tuple[pa.Buffer, pa.Buffer] | None] = (None, None)

    def name(self, key: int) -> SchemaName:
        """
        Return the name that has a key.
        """
        return SchemaName("id", key) if key >= 0 else self._names[key]

    def keys(self, headers: pa.Array | None) -> tuple[pa.Buffer, pa.Buffer] | None:
        """
        Return ascending rows and their 64-bit keys; None if no row has a header with a schema id.

        The result for the last array is cached.
        """
        if headers is not self._last[0]:
            self._last = (headers, None if headers is None else self._search(headers))
        return self._last[1]

    def _search(self, headers: pa.Array) -> tuple[pa.Buffer, pa.Buffer] | None:
        # Checked first because it is cheap: most topics have no headers at all.
        if headers.null_count == len(headers) or not len(headers.flatten()):
            return None
        headers = without_nulls(headers)
        pairs = headers.values
        if len(self._keys) > MAX_NAMES:
            self._keys.clear()
            self._names.clear()
        import pyarrow.compute as pc

        parents = pc.list_parent_indices(headers)
        names, values = pairs.field("key"), pairs.field("value")
        parts: list[tuple[pa.Array, pa.Array]] = []
        for name, read in self._headers.items():
            mask = pc.fill_null(pc.equal(names, name), fill_value=False)
            if pc.any(mask).as_py():
                encoded = pc.dictionary_encode(values.filter(mask))
                values_seen: list[bytes | None] = encoded.dictionary.to_pylist()
                keys = [self._key(read(value)) for value in values_seen]
                row_keys = pa.array(keys, pa.int64()).take(encoded.indices)
                parts.append((parents.filter(mask).cast(pa.int64()), row_keys.fill_null(0)))
        if not parts:
            return None
        merged_rows, merged_keys = _merge(parts)
        if self._message_header:
            mask = pc.fill_null(pc.equal(names, self._message_header), fill_value=False)
            if pc.any(mask).as_py():
                named_rows = parents.filter(mask).cast(pa.int64())
                messages = values.filter(mask)
                merged_keys = self._with_messages(merged_rows, merged_keys, named_rows, messages)
        return _buffer(merged_rows), _buffer(merged_keys)

    def _with_messages(
        self, rows: pa.Array, keys: pa.Array, named_rows: pa.Array, names: pa.Array
    ) -> pa.Array:
        """
        Return the keys of ``rows``, changed where another header names the row's message.
        """
        import pyarrow.compute as pc

        # The first match in the reversed rows is the last header of a row.
        last = pc.index_in(rows, value_set=named_rows[::-1])
        encoded = pc.dictionary_encode(names[::-1].take(last))
        messages: list[bytes | None] = [*encoded.dictionary.to_pylist(), None]
        message_indices = pc.fill_null(encoded.indices.cast(pa.int64()), len(messages) - 1)
        pairs = pc.dictionary_encode(pc.add(pc.multiply(keys, len(messages)), message_indices))
        unique = [divmod(pair, len(messages)) for pair in pairs.dictionary.to_pylist()]
        resolved_keys = [self._named(key, messages[index]) for key, index in unique]
        return pa.array(resolved_keys, pa.int64()).take(pairs.indices)

    def _named(self, key: int, message: bytes | None) -> int:
        name = self.name(key)
        if message is None or name.kind not in {"globalId", "contentId"}:
            return key
        if len(message) > _MAX_MESSAGE_BYTES:
            reason = f"a header {self._message_header} of more than {_MAX_MESSAGE_BYTES} bytes"
            return self._key(SchemaName("invalid", reason))
        return self._key(name._replace(message=message.decode("utf-8", "replace")))

    def _key(self, name: SchemaName) -> int:
        if name not in self._keys:
            self._keys[name] = self._next
            self._names[self._next] = name
            self._next -= 1
        return self._keys[name]


def _merge(parts: Sequence[tuple[pa.Array, pa.Array]]) -> tuple[pa.Array, pa.Array]:
    # The decoder uses the last key of a row. With the parts reversed, that is the key of the row's
    # last header of the kind that comes first in ``parts``.
    rows = pa.concat_arrays([rows for rows, _ in reversed(parts)])
    keys = pa.concat_arrays([keys for _, keys in reversed(parts)])
    if len(parts) > 1:
        # Rare: records of several serializers. The sort is stable.
        order = pa.array(sorted(range(len(rows)), key=rows.to_pylist().__getitem__), pa.int64())
        rows, keys = rows.take(order), keys.take(order)
    return rows, keys


def _buffer(numbers: pa.Array) -> pa.Buffer:
    return numbers.buffers()[1].slice(8 * numbers.offset, 8 * len(numbers))


def _guid(value: bytes | None) -> SchemaName:
    if value is None or len(value) != 17 or value[0] != _GUID_VERSION:
        reason = "a header __..._schema_id that is not the byte 1 followed by a GUID"
        return SchemaName("invalid", reason)
    return SchemaName("guid", str(UUID(bytes=value[1:])))


def _guid_and_path(value: bytes | None) -> SchemaName:
    if value is None or len(value) <= _GUID_BYTES:
        return _guid(value)._replace(path=(0,))
    if len(value) > _GUID_BYTES + _MAX_PATH_BYTES:
        return _WITHOUT_INDEX
    guid, numbers = _guid(value[:_GUID_BYTES]), _zigzag_numbers(value[_GUID_BYTES:])
    if numbers[:1] == [0]:
        numbers = [1, 0]
    if guid.kind == "invalid" or len(numbers) != numbers[0] + 1 or min(numbers) < 0:
        return _WITHOUT_INDEX
    return guid._replace(path=tuple(numbers[1:]))


def _zigzag_numbers(data: bytes) -> list[int]:
    numbers, bits, shift = [], 0, 0
    for byte in data:
        bits |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(bits >> 1 ^ -(bits & 1))
            bits = shift = 0
    # A truncated number makes the list invalid.
    return numbers if not shift else [-1]


def _number(kind: str, value: bytes | None) -> SchemaName:
    if value is None or len(value) != 8 or value[0] >= 0x80:
        return SchemaName("invalid", f"a header apicurio....{kind} that is not an 8-byte id")
    return SchemaName(kind, int.from_bytes(value, "big"))
