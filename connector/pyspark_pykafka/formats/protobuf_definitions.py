"""
Messages, fields and enums of Protobuf schemas, and those that every schema may import.
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: The kinds of fields that the rest of the code names, by the numbers of descriptors.
DOUBLE, FLOAT, BOOL, STRING, BYTES = 1, 2, 8, 9, 12
MESSAGE, ENUM = 11, 14


class ProtobufSchemaError(ValueError):
    """
    A schema that is none, or one that no column can have; the message says why.
    """


@dataclass(frozen=True, slots=True)
class ProtobufField:
    """
    A field of a message; ``kind`` is the number of its type, and ``type_name`` that of a message or
    an enum.

    ``oneof`` is the index of the oneof that it is a member of, or -1; ``default`` is the text of an
    explicit default, or None.
    """

    name: str
    number: int
    kind: int
    type_name: str = ""
    repeated: bool = False
    oneof: int = -1
    default: str | None = None


@dataclass(frozen=True, slots=True)
class ProtobufMessage:
    """
    A message; ``nested`` are those that it defines, in their order. A map's entry is a message too.
    """

    name: str
    fields: tuple[ProtobufField, ...]
    nested: tuple[ProtobufMessage, ...] = ()
    is_map_entry: bool = False


@dataclass(frozen=True, slots=True)
class ProtobufEnum:
    """
    An enum with its (number, symbol)s. A number without a symbol is no value if it is closed.
    """

    name: str
    symbols: tuple[tuple[int, str], ...]
    is_closed: bool


@dataclass(slots=True)
class ProtobufSchema:
    """
    All messages and enums of some files by their full names, and the ``roots`` of the last file.
    """

    messages: dict[str, ProtobufMessage] = field(default_factory=dict)
    enums: dict[str, ProtobufEnum] = field(default_factory=dict)
    roots: tuple[ProtobufMessage, ...] = ()

    def message(self, name: str) -> ProtobufMessage:
        """
        Return a message. Raises :class:`ProtobufSchemaError` if the schema does not define it.
        """
        found = self.messages.get(name) or WELL_KNOWN.get(name)
        if found is None:
            msg = f"it has the message '{name}', which it does not define; include its imports"
            raise ProtobufSchemaError(msg)
        return found

    def enum(self, name: str) -> ProtobufEnum:
        """
        Return an enum. Raises :class:`ProtobufSchemaError` if the schema does not define it.
        """
        found = self.enums.get(name)
        if found is None:
            msg = f"it has the enum '{name}', which it does not define; include its imports"
            raise ProtobufSchemaError(msg)
        return found


def _built_in(name: str, *fields: tuple[str, int]) -> ProtobufMessage:
    """
    Return a message of fields that are numbered from 1, each (name, kind).
    """
    listed = [ProtobufField(field, at, kind) for at, (field, kind) in enumerate(fields, 1)]
    return ProtobufMessage(name, tuple(listed))


_GOOGLE = "google.protobuf"

#: The wrappers of Protobuf's own types, with the kinds of their values.
WRAPPERS = {
    f"{_GOOGLE}.{name}": kind
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

#: What schemas may import without defining it, as registries allow.
WELL_KNOWN = {
    message.name: message
    for message in (
        _built_in(f"{_GOOGLE}.Timestamp", ("seconds", 3), ("nanos", 5)),
        _built_in(f"{_GOOGLE}.Duration", ("seconds", 3), ("nanos", 5)),
        _built_in(f"{_GOOGLE}.Any", ("type_url", 9), ("value", 12)),
        _built_in(f"{_GOOGLE}.Empty"),
        ProtobufMessage(f"{_GOOGLE}.FieldMask", (ProtobufField("paths", 1, 9, repeated=True),)),
        _built_in("confluent.type.Decimal", ("value", 12), ("precision", 13), ("scale", 5)),
        *(_built_in(name, ("value", kind)) for name, kind in WRAPPERS.items()),
    )
}
