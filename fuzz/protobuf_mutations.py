"""
Protobuf messages of arbitrary bytes, and the invariants that the decoder must keep for each.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from fuzz.decoding import decode_all, joined_pieces
from google.protobuf import descriptor_pb2, duration_pb2, timestamp_pb2, wrappers_pb2

from pyspark_pykafka.formats.bad_records import BadRecordPolicy
from pyspark_pykafka.formats.encoded_column import EncodedColumn, EncodingError
from pyspark_pykafka.formats.protobuf_decoder import ProtobufColumn
from pyspark_pykafka.formats.protobuf_schemas import ResolvedSchema
from pyspark_pykafka.formats.registered_protobuf import RegisteredProtobufColumn
from pyspark_pykafka.formats.registered_schemas import UnusableSchemaError
from pyspark_pykafka.formats.write_format import WrittenColumn

if TYPE_CHECKING:
    from fuzz.mutations import Choices

    from pyspark_pykafka.formats.schema_names import SchemaName

MAX_BYTES = 1 << 16
IMPORTS = (timestamp_pb2, duration_pb2, wrappers_pb2)

# The encoder's reasons for a name that an enum does not have, and for a time beyond the limits of
# Timestamp and Duration.
_UNKNOWN_SYMBOL, _OUT_OF_RANGE = 4, 6
_MAX_DEPTH = 3
_FIELD = descriptor_pb2.FieldDescriptorProto
_UINT64 = pa.decimal128(20, 0)
# Types of fields that have no parts, with the types of their columns.
_SIMPLE: list[tuple[int, str, pa.DataType]] = [
    (_FIELD.TYPE_DOUBLE, "", pa.float64()),
    (_FIELD.TYPE_FLOAT, "", pa.float32()),
    (_FIELD.TYPE_INT64, "", pa.int64()),
    (_FIELD.TYPE_UINT64, "", _UINT64),
    (_FIELD.TYPE_INT32, "", pa.int32()),
    (_FIELD.TYPE_INT32, "", pa.int64()),
    (_FIELD.TYPE_FIXED64, "", _UINT64),
    (_FIELD.TYPE_FIXED32, "", pa.int64()),
    (_FIELD.TYPE_BOOL, "", pa.bool_()),
    (_FIELD.TYPE_STRING, "", pa.string()),
    (_FIELD.TYPE_BYTES, "", pa.binary()),
    (_FIELD.TYPE_UINT32, "", pa.int64()),
    (_FIELD.TYPE_SFIXED32, "", pa.int32()),
    (_FIELD.TYPE_SFIXED64, "", pa.int64()),
    (_FIELD.TYPE_SINT32, "", pa.int32()),
    (_FIELD.TYPE_SINT64, "", pa.int64()),
    (_FIELD.TYPE_ENUM, ".shop.E", pa.string()),
    (_FIELD.TYPE_MESSAGE, ".google.protobuf.Timestamp", pa.timestamp("us", tz="UTC")),
    (_FIELD.TYPE_MESSAGE, ".google.protobuf.Duration", pa.duration("us")),
    (_FIELD.TYPE_MESSAGE, ".google.protobuf.StringValue", pa.string()),
    (_FIELD.TYPE_MESSAGE, ".google.protobuf.UInt32Value", pa.int64()),
]
_KEYS = [
    *((_FIELD.TYPE_STRING, pa.string()), (_FIELD.TYPE_INT32, pa.int32())),
    *((_FIELD.TYPE_UINT64, _UINT64), (_FIELD.TYPE_BOOL, pa.bool_())),
]
_PIECES = (
    *(b"", b"\x00", b"\x01", b"\x7f", b"\x80", b"abc", b"\xc3\xa9", b"\xff"),
    *(b"\x08\x01", b"\x0a\x01a", b"\x0a\x00", b"\x12\x02\x08\x01", b"\x0a\x04\x0a\x01a\x10"),
    *(b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x0b\x0c"),
    *(b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", b"\x0d\x00\x00\x00\x00", b"\x1b", b"\x1c"),
)


@dataclass(frozen=True, slots=True)
class MessageSpec:
    """
    A message: the descriptors of its files, its full name, and a type for its column.
    """

    files: Any
    name: str
    kind: pa.DataType

    @property
    def schema(self) -> ResolvedSchema:
        """
        The schema in the form that a column takes.
        """
        text = base64.b64encode(self.files.SerializeToString()).decode()
        return ResolvedSchema(text, self.name)


def any_message(choices: Choices) -> MessageSpec:
    """
    Return a message of any shape, and a type of some of its fields.
    """
    file = new_file("proto2" if choices.number(0, 2) == 0 else "proto3")
    name, kind = _message(file, choices, 0)
    return MessageSpec(with_imports(file), f"shop.{name}", kind)


def new_file(syntax: str) -> Any:
    """
    Return a file with the enum ``shop.E``, which imports the well-known types.
    """
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax=syntax)
    file.dependency.extend(module.DESCRIPTOR.name for module in IMPORTS)
    enum = file.enum_type.add(name="E")
    for number in (0, 1, 5, -3):
        enum.value.add(name=f"S{number}".replace("-", "_"), number=number)
    return file


def with_imports(*files: Any) -> Any:
    """
    Return the FileDescriptorSet of files and the well-known types.
    """
    descriptors = descriptor_pb2.FileDescriptorSet()
    for module in IMPORTS:
        module.DESCRIPTOR.CopyToProto(descriptors.file.add())
    descriptors.file.extend(files)
    return descriptors


def _message(file: Any, choices: Choices, depth: int) -> tuple[str, pa.DataType]:
    message = file.message_type.add(name=f"M{len(file.message_type)}")
    columns: list[tuple[str, pa.DataType]] = []
    for index in range(choices.number(1, 5)):
        # A number of two bytes, and one beyond the table of numbers.
        number = (index + 1, 20 * index + 1, 2000 * index + 1)[choices.number(0, 2) if index else 0]
        number = max([number, *(f.number + 1 for f in message.field)])
        field = message.field.add(name=f"f{index}", number=number, label=_FIELD.LABEL_OPTIONAL)
        kind = _shape(file, message, field, choices, depth)
        if index == 0 or choices.number(0, 3):
            columns.append((field.name, kind))
    return message.name, pa.struct(columns)


def _shape(file: Any, message: Any, field: Any, choices: Choices, depth: int) -> pa.DataType:
    """
    Give a field a type, and return the type of its column.
    """
    shape = choices.number(0, 6)
    if shape == 0:
        return _map(file, message, field, choices, depth)
    kind = _single(file, field, choices, depth)
    if shape == 1:
        field.label = _FIELD.LABEL_REPEATED
        packable = field.type not in {_FIELD.TYPE_STRING, _FIELD.TYPE_BYTES, _FIELD.TYPE_MESSAGE}
        if packable and choices.number(0, 1):
            field.options.packed = not field.options.packed and file.syntax == "proto2"
        return pa.list_(kind)
    if shape <= 3:
        if not message.oneof_decl:
            message.oneof_decl.add(name="choice")
        field.oneof_index = 0
    elif file.syntax == "proto2" and field.type == _FIELD.TYPE_SINT32:
        field.default_value = "-7"
    elif file.syntax == "proto2" and field.type == _FIELD.TYPE_STRING:
        field.default_value = "none"
    return kind


def _single(file: Any, field: Any, choices: Choices, depth: int) -> pa.DataType:
    choice = choices.number(0, len(_SIMPLE) + 8)
    if choice >= len(_SIMPLE) and depth < _MAX_DEPTH:
        name, kind = _message(file, choices, depth + 1)
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".shop.{name}"
        return kind
    field.type, name, kind = _SIMPLE[choice % len(_SIMPLE)]
    if name:
        field.type_name = name
    return kind


def _map(file: Any, message: Any, field: Any, choices: Choices, depth: int) -> pa.DataType:
    entry = message.nested_type.add(name=f"{field.name.title()}Entry")
    entry.options.map_entry = True
    kind, key = _KEYS[choices.number(0, len(_KEYS) - 1)]
    entry.field.add(name="key", number=1, label=_FIELD.LABEL_OPTIONAL, type=kind)
    value = entry.field.add(name="value", number=2, label=_FIELD.LABEL_OPTIONAL)
    item = _single(file, value, choices, depth + 1)
    field.label, field.type = _FIELD.LABEL_REPEATED, _FIELD.TYPE_MESSAGE
    field.type_name = f".shop.{message.name}.{entry.name}"
    return pa.map_(key, item)


def values(choices: Choices) -> list[bytes | None]:
    """
    Return some records, made of typical pieces of a message or of arbitrary bytes.
    """
    return joined_pieces(choices, _PIECES)


def decode_any(records: list[bytes | None], choices: Choices) -> int:
    """
    Decode records as any message, check the invariants, and return the number of good ones.

    The decoded rows can be encoded, and the resulting messages are good.
    """
    spec = any_message(choices)
    good, rows = decode_all(records, _column(spec), MAX_BYTES)
    written = WrittenColumn("value", "protobuf", spec.kind).with_message(spec.schema)
    try:
        encoded = EncodedColumn(written).encode(rows, 0, len(rows), MAX_BYTES)
    except EncodingError as error:
        # A number without a symbol is decoded as a name that the enum does not have.
        assert error.reason in {_UNKNOWN_SYMBOL, _OUT_OF_RANGE}  # noqa: PT017 (no test)
        return good
    encoded.validate(full=True)
    good_again, _ = decode_all(encoded.to_pylist(), _column(spec), MAX_BYTES)
    assert good_again == len(encoded)
    return good


def _column(spec: MessageSpec) -> ProtobufColumn:
    policy = BadRecordPolicy("null")
    return ProtobufColumn("value", spec.kind, spec.schema, MAX_BYTES, policy)


class _Writers:
    """
    Stands in for a registry: the messages of some ids cannot be used.
    """

    def check(self, name: SchemaName, path: tuple[int, ...], message: str) -> None:
        """
        Decide by the last bits of an id and of the first index.
        """
        number = int(name.value) if name.kind == "id" else 0
        if (number + sum(path[:1])) % 4 == 3:
            raise UnusableSchemaError(message)


def decode_named(records: list[bytes | None], choices: Choices) -> int:
    """
    Decode records that name any of several messages, all read as another one.
    """
    spec = any_message(choices)
    id_bytes = (4, 8)[choices.number(0, 1)]
    column = RegisteredProtobufColumn(
        *("value", spec.kind, spec.schema, MAX_BYTES, BadRecordPolicy("null")),
        id_bytes=id_bytes,
        writers=_Writers(),
    )
    framed = [None if record is None else _prefix(choices, id_bytes) + record for record in records]
    good, _ = decode_all(framed, column, MAX_BYTES)
    return good


def _prefix(choices: Choices, id_bytes: int) -> bytes:
    """
    Return the id of a schema, and the path or Apicurio's name of a message; rarely cut off or in
    another form.
    """
    prefix = choices.number(0, 9).to_bytes(1 + id_bytes, "big")
    paths = (b"\x00", b"\x00", b"\x02\x02", b"\x04\x00\x06", b"\x03", b"\x80", b"\x04\x0a\x02M0")
    path = paths[choices.number(0, len(paths) - 1)]
    return (prefix if choices.number(0, 7) else choices.some_bytes(1 + id_bytes)) + path
