"""
The messages, fields and enums of Protobuf schemas.
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: The numbers in descriptors for the field types that other modules use.
DOUBLE, FLOAT, BOOL, STRING, BYTES = 1, 2, 8, 9, 12
MESSAGE, ENUM = 11, 14

#: The names of field types, for messages.
TYPE_NAMES = {
    DOUBLE: "double",
    FLOAT: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    6: "fixed64",
    7: "fixed32",
    BOOL: "bool",
    STRING: "string",
    MESSAGE: "message",
    BYTES: "bytes",
    13: "uint32",
    ENUM: "enum",
    15: "sfixed32",
    16: "sfixed64",
    17: "sint32",
    18: "sint64",
}


class ProtobufSchemaError(ValueError):
    """
    The schema is invalid, or no column can have its type; the message has the reason.
    """


@dataclass(frozen=True, slots=True)
class ProtobufField:
    """
    A field of a message. ``kind`` is the number of its type; ``type_name`` is the name of its
    message or enum.

    ``oneof`` is the index of the field's oneof, or -1. ``default`` is the text of an explicit
    default, or None.

    The attributes from ``has_presence`` on matter only for writing. With ``has_presence``, zero
    differs from no value; with ``is_packed``, all elements of a list follow one tag; with
    ``is_group``, a message ends with a tag.
    """

    name: str
    number: int
    kind: int
    type_name: str = ""
    repeated: bool = False
    oneof: int = -1
    default: str | None = None
    has_presence: bool = False
    is_packed: bool = False
    is_required: bool = False
    is_group: bool = False


@dataclass(frozen=True, slots=True)
class ProtobufMessage:
    """
    A message; ``nested`` are its nested messages in the order of the file, map entries included.
    """

    name: str
    fields: tuple[ProtobufField, ...]
    nested: tuple[ProtobufMessage, ...] = ()
    is_map_entry: bool = False


@dataclass(frozen=True, slots=True)
class ProtobufEnum:
    """
    An enum with its (number, symbol) pairs. A closed enum allows only numbers that have a symbol.

    ``aliases`` are further symbols of these numbers.
    """

    name: str
    symbols: tuple[tuple[int, str], ...]
    is_closed: bool
    aliases: tuple[tuple[int, str], ...] = ()


@dataclass(slots=True)
class ProtobufSchema:
    """
    All messages and enums of a set of files by full name. ``roots`` are the top-level messages of
    the last file.
    """

    messages: dict[str, ProtobufMessage] = field(default_factory=dict)
    enums: dict[str, ProtobufEnum] = field(default_factory=dict)
    roots: tuple[ProtobufMessage, ...] = ()

    def message(self, name: str) -> ProtobufMessage:
        """
        Return a message. Raises :class:`ProtobufSchemaError` if the schema does not define it.
        """
        message = self.messages.get(name)
        if message is None:
            msg = f"it uses the message '{name}', but does not define it; include its imports"
            raise ProtobufSchemaError(msg)
        return message

    def enum(self, name: str) -> ProtobufEnum:
        """
        Return an enum. Raises :class:`ProtobufSchemaError` if the schema does not define it.
        """
        enum = self.enums.get(name)
        if enum is None:
            msg = f"it uses the enum '{name}', but does not define it; include its imports"
            raise ProtobufSchemaError(msg)
        return enum


#: Protobuf's wrapper messages, with the kinds of their values.
WRAPPERS = {
    f"google.protobuf.{name}": kind
    for name, kind in {
        "DoubleValue": 1,
        "FloatValue": 2,
        "Int64Value": 3,
        "UInt64Value": 4,
        "Int32Value": 5,
        "BoolValue": 8,
        "StringValue": 9,
        "BytesValue": 12,
        "UInt32Value": 13,
    }.items()
}
