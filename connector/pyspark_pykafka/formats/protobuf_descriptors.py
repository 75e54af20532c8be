"""
Parses Protobuf schemas: the descriptors of files, messages and enums that ``protoc`` writes.

This module does not use Protobuf's own library, whose version may conflict with the version that a
user's generated code needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.formats.protobuf_definitions import (
    BYTES,
    MESSAGE,
    STRING,
    ProtobufEnum,
    ProtobufField,
    ProtobufMessage,
    ProtobufSchema,
    ProtobufSchemaError,
)
from pyspark_pykafka.varint import unsigned_varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_GROUP = 10

_REQUIRED, _REPEATED, _CLOSED_ENUM = 2, 3, 2
# The features of editions that affect the encoding, and the values that differ from the defaults
# of _Features.
_FIELD_PRESENCE, _REPEATED_FIELD_ENCODING, _MESSAGE_ENCODING = 1, 3, 5
_IMPLICIT, _LEGACY_REQUIRED, _PACKED, _DELIMITED = 2, 3, 1, 2
_PROTO3, _FIRST_EDITION = "proto3", 1000
_VARINT, _I64, _LEN, _I32 = 0, 1, 2, 5
_MAX_VARINT_BITS = 70
# The maximum levels of messages within messages; ``protoc`` itself allows fewer.
_MAX_NESTING = 100

Value = int | bytes


class DescribedFile(NamedTuple):
    """
    The name of a ``.proto`` file, the names of its imports, and its encoded FileDescriptorProto.
    """

    name: str
    imports: tuple[str, ...]
    data: bytes


def described_files(data: bytes) -> list[DescribedFile]:
    """
    Return the files of a FileDescriptorSet, in order.

    Raises :class:`ProtobufSchemaError` if ``data`` is not a FileDescriptorSet.
    """
    files = [_bytes(value) for number, value in _fields(data) if number == 1]
    return [_parse_file(file) for file in files]


def _parse_file(data: bytes) -> DescribedFile:
    parts = list(_fields(data))
    name = "".join(_text(value) for number, value in parts if number == 1)
    return DescribedFile(name, tuple(_text(value) for n, value in parts if n == 3), data)


def parse_files(files: Sequence[bytes]) -> ProtobufSchema:
    """
    Parse FileDescriptorProtos, each after its imports.

    Raises :class:`ProtobufSchemaError` if a file is not a FileDescriptorProto.
    """
    schema = ProtobufSchema()
    for data in files:
        _File(schema).read(data)
    return schema


def descriptor_set(files: list[bytes]) -> bytes:
    """
    Return the FileDescriptorSet of encoded FileDescriptorProtos.
    """
    return b"".join(b"\x0a" + varint(len(data)) + data for data in files)


def varint(number: int) -> bytes:
    """
    Return a number of at most 64 bits as a Protobuf varint: the varint of its two's complement.
    """
    return unsigned_varint(number & (1 << 64) - 1)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """
    Return the varint at a position, and the position after it.

    Raises :class:`ProtobufSchemaError` if the varint is incomplete.
    """
    number = 0
    for shift in range(0, _MAX_VARINT_BITS, 7):
        if position >= len(data):
            break
        number |= (data[position] & 0x7F) << shift
        position += 1
        if data[position - 1] < 0x80:
            return number & ((1 << 64) - 1), position
    msg = "it is not a descriptor written by protoc: a varint is incomplete"
    raise ProtobufSchemaError(msg)


def _fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """
    Yield the numbers and values of a message's fields.
    """
    position = 0
    while position < len(data):
        tag, position = read_varint(data, position)
        wire_type = tag & 7
        if wire_type == _VARINT:
            number, position = read_varint(data, position)
            yield tag >> 3, number
            continue
        if wire_type == _LEN:
            size, position = read_varint(data, position)
        elif wire_type in {_I64, _I32}:
            size = 8 if wire_type == _I64 else 4
        else:
            size = len(data)
        if size > len(data) - position:
            msg = "it is not a descriptor written by protoc: a field is incomplete"
            raise ProtobufSchemaError(msg)
        yield tag >> 3, data[position : position + size]
        position += size


def _bytes(value: Value) -> bytes:
    if isinstance(value, bytes):
        return value
    msg = "it is not a descriptor written by protoc: a field has an unexpected type"
    raise ProtobufSchemaError(msg)


def _text(value: Value) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError as cause:
        msg = "it is not a descriptor written by protoc: a name is not UTF-8"
        raise ProtobufSchemaError(msg) from cause


def _number(value: Value) -> int:
    if isinstance(value, bytes):
        msg = "it is not a descriptor written by protoc: a field has an unexpected type"
        raise ProtobufSchemaError(msg)
    return value - (1 << 64) if value >> 63 else value


@dataclass(frozen=True, slots=True)
class _Features:
    """
    How fields are encoded, as set for a file, a message or a single field.
    """

    has_presence: bool = True
    is_packed: bool = False
    is_required: bool = False
    is_delimited: bool = False

    def overridden(self, options: Iterable[tuple[int, Value]], number: int) -> _Features:
        """
        Return these features, overridden by those in the field ``number`` of the options.
        """
        features = {
            n: _number(v)
            for field_number, part in options
            if field_number == number
            for n, v in _fields(_bytes(part))
            if n in {_FIELD_PRESENCE, _REPEATED_FIELD_ENCODING, _MESSAGE_ENCODING}
        }
        changed = self
        if presence := features.get(_FIELD_PRESENCE):
            required = presence == _LEGACY_REQUIRED
            changed = replace(changed, has_presence=presence != _IMPLICIT, is_required=required)
        if lists := features.get(_REPEATED_FIELD_ENCODING):
            changed = replace(changed, is_packed=lists == _PACKED)
        if messages := features.get(_MESSAGE_ENCODING):
            changed = replace(changed, is_delimited=messages == _DELIMITED)
        return changed


@dataclass(slots=True)
class _File:
    """
    Adds the definitions of one file to a schema.
    """

    schema: ProtobufSchema
    features: _Features = _Features()
    has_closed_enums: bool = True

    def read(self, data: bytes) -> None:
        package = syntax = ""
        edition = enum_type = 0
        options: list[tuple[int, Value]] = []
        parts: list[tuple[int, bytes]] = []
        for number, value in _fields(data):
            if number == 2:
                package = _text(value)
            elif number in {4, 5}:
                parts.append((number, _bytes(value)))
            elif number == 8:
                enum_type = _enum_feature(_bytes(value), 50)
                options += _fields(_bytes(value))
            elif number == 12:
                syntax = _text(value)
            elif number == 14:
                edition = _number(value)
        self.has_closed_enums = enum_type == _CLOSED_ENUM
        if not enum_type:
            self.has_closed_enums = syntax != _PROTO3 and edition < _FIRST_EDITION
        self.features = _Features(
            has_presence=syntax != _PROTO3, is_packed=syntax == _PROTO3 or edition >= _FIRST_EDITION
        ).overridden(options, 50)
        roots = [
            self.message(part, package, 1, self.features) for number, part in parts if number == 4
        ]
        for number, part in parts:
            if number == 5:
                self.enum(part, package)
        self.schema.roots = tuple(roots)

    def message(self, data: bytes, scope: str, depth: int, features: _Features) -> ProtobufMessage:
        parts = list(_fields(data))
        name = _full(scope, "".join(_text(value) for number, value in parts if number == 1))
        if depth > _MAX_NESTING:
            msg = f"it nests messages more than {_MAX_NESTING} levels deep"
            raise ProtobufSchemaError(msg)
        options = [pair for n, value in parts if n == 7 for pair in _fields(_bytes(value))]
        features = features.overridden(options, 12)
        nested = [self.message(_bytes(v), name, depth + 1, features) for n, v in parts if n == 3]
        for number, value in parts:
            if number == 4:
                self.enum(_bytes(value), name)
        message = ProtobufMessage(
            name,
            tuple(_field(_bytes(value), features) for number, value in parts if number == 2),
            tuple(nested),
            is_map_entry=any(number == 7 and value for number, value in options),
        )
        self.schema.messages[name] = message
        return message

    def enum(self, data: bytes, scope: str) -> None:
        name, enum_type = "", 0
        symbols: dict[int, str] = {}
        aliases: list[tuple[int, str]] = []
        for number, value in _fields(data):
            if number == 1:
                name = _full(scope, _text(value))
            elif number == 2:
                parts = dict(_fields(_bytes(value)))
                # If several symbols have one number, the first is used.
                symbol, symbol_number = _text(parts.get(1, b"")), _number(parts.get(2, 0))
                if symbols.setdefault(symbol_number, symbol) != symbol:
                    aliases.append((symbol_number, symbol))
            elif number == 3:
                enum_type = _enum_feature(_bytes(value), 7)
        is_closed = enum_type == _CLOSED_ENUM if enum_type else self.has_closed_enums
        self.schema.enums[name] = ProtobufEnum(
            name, tuple(symbols.items()), is_closed, tuple(aliases)
        )


def _enum_feature(options: bytes, number: int) -> int:
    """
    Return the ``enum_type`` feature (1 open, 2 closed) in the options of an edition, or 0.
    """
    features = [_bytes(value) for n, value in _fields(options) if n == number]
    return next((_number(v) for part in features for n, v in _fields(part) if n == 2), 0)


def _full(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def _field(data: bytes, features: _Features) -> ProtobufField:
    parts = dict(_fields(data))
    kind = _number(parts.get(5, 0))
    is_synthetic = bool(parts.get(17, 0))
    in_oneof = 9 in parts
    label = _number(parts.get(4, 0))
    options = dict(_fields(_bytes(parts.get(8, b""))))
    features = features.overridden(options.items(), 21)
    can_be_packed = kind not in {STRING, BYTES, MESSAGE, _GROUP}
    return ProtobufField(
        _text(parts.get(1, b"")),
        _number(parts.get(3, 0)),
        MESSAGE if kind == _GROUP else kind,
        _text(parts.get(6, b"")).removeprefix("."),
        label == _REPEATED,
        -1 if is_synthetic else _number(parts.get(9, (1 << 64) - 1)),
        _text(parts[7]) if 7 in parts else None,
        has_presence=features.has_presence or in_oneof or kind in {MESSAGE, _GROUP},
        is_packed=can_be_packed and bool(options.get(2, features.is_packed)),
        is_required=label == _REQUIRED or (features.is_required and label != _REPEATED),
        is_group=kind == _GROUP or (kind == MESSAGE and features.is_delimited),
    )
