"""
Generates the values of typed topics: the same kind of records as JSON, Avro and Protobuf.
"""

from __future__ import annotations

import io
import json
import random
import struct
from functools import cache
from typing import TYPE_CHECKING, Any

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Record = dict[str, int | float | str]

SEED = 1024
SAMPLES = 997
#: Twenty fields of a record: numbers, texts, and a field that half of the records lack.
FIELDS = {
    **{f"long{i}": "BIGINT" for i in range(6)},
    **{f"double{i}": "DOUBLE" for i in range(4)},
    **{f"text{i}": "STRING" for i in range(9)},
    "optional": "BIGINT",
}
FIVE = ("long0", "double1", "text2", "long5", "optional")
#: The length of each text in characters, which makes a value of about 1 KB.
TEXT_LENGTHS = {"json": 70, "avro": 103, "protobuf": 100}
#: The schema's id, and the prefix of each Avro value (Confluent's wire format).
SCHEMA_ID = 1
PREFIX = struct.pack(">bi", 0, SCHEMA_ID)
#: The prefix of each Protobuf value: the message is the first of its schema.
MESSAGE_PREFIX = PREFIX + b"\0"
MESSAGE_NAME = "Document"
_LETTERS = "etaoinshrdlucmfwypvbgkqjxz "
_AVRO_TYPES = {"BIGINT": "long", "DOUBLE": "double", "STRING": "string"}
_FIELD = descriptor_pb2.FieldDescriptorProto
_PROTOBUF_TYPES = {
    "BIGINT": _FIELD.TYPE_INT64,
    "DOUBLE": _FIELD.TYPE_DOUBLE,
    "STRING": _FIELD.TYPE_STRING,
}


def documents(kind: str) -> list[bytes]:
    """
    Return different values of about 1 KB, identical in every run; ``kind`` is a key of
    ``TEXT_LENGTHS``.
    """
    return [_ENCODERS[kind](record) for record in records(TEXT_LENGTHS[kind])]


def records(text_length: int) -> list[Record]:
    """
    Return the records that the values encode.
    """
    generator = random.Random(SEED)  # noqa: S311 (data must be reproducible)
    return [_record(generator, text_length, has_optional=bool(i % 2)) for i in range(SAMPLES)]


def avro_schema(names: Iterable[str]) -> str:
    """
    Return the Avro schema of some of the fields.
    """
    fields = [_avro_field(name) for name in names]
    return json.dumps({"type": "record", "name": "Document", "fields": fields})


def protobuf_file(names: Iterable[str]) -> descriptor_pb2.FileDescriptorProto:
    """
    Return the descriptor of a message with some of the fields.
    """
    file = descriptor_pb2.FileDescriptorProto(name="document.proto", syntax="proto3")
    message = file.message_type.add(name=MESSAGE_NAME)
    numbers = {name: number for number, name in enumerate(FIELDS, 1)}
    for name in names:
        kind = _PROTOBUF_TYPES[FIELDS[name]]
        message.field.add(name=name, number=numbers[name], label=_FIELD.LABEL_OPTIONAL, type=kind)
    return file


def _record(generator: random.Random, text_length: int, *, has_optional: bool) -> Record:
    record: Record = {}
    for name, kind in FIELDS.items():
        if kind == "BIGINT":
            record[name] = generator.randrange(10**12)
        elif kind == "DOUBLE":
            record[name] = generator.random() * 1000
        else:
            record[name] = "".join(generator.choices(_LETTERS, k=text_length))
    if not has_optional:
        del record["optional"]
    return record


def _avro_field(name: str) -> dict[str, str | list[str] | None]:
    kind = _AVRO_TYPES[FIELDS[name]]
    if name == "optional":
        return {"name": name, "type": ["null", kind], "default": None}
    return {"name": name, "type": kind}


def _json(record: Record) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()


def _avro(record: Record) -> bytes:
    encoded = io.BytesIO()
    encoded.write(PREFIX)
    fastavro.schemaless_writer(encoded, _ALL_FIELDS, record)
    return encoded.getvalue()


def _protobuf(record: Record) -> bytes:
    message: bytes = _message_class()(**record).SerializeToString()
    return MESSAGE_PREFIX + message


@cache
def _message_class() -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(protobuf_file(FIELDS))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(MESSAGE_NAME))


_ALL_FIELDS = fastavro.parse_schema(json.loads(avro_schema(FIELDS)))
_ENCODERS: dict[str, Callable[[Record], bytes]] = {
    "json": _json,
    "avro": _avro,
    "protobuf": _protobuf,
}
