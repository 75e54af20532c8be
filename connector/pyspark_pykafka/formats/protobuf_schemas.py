"""
Resolves the Protobuf schemas of columns to one form: the descriptors of all files, and the name of
a message.

Users give a schema as the text of a ``.proto`` file, as the descriptors that ``protoc`` writes (in
base64), or as the path of a file of either kind. Registries return such texts, or one file's
descriptor in base64.
"""

from __future__ import annotations

import base64
import binascii
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.formats.proto_text import MessageNames, message_names
from pyspark_pykafka.formats.protobuf_definitions import ProtobufSchemaError
from pyspark_pykafka.formats.protobuf_descriptors import descriptor_set, parse_files
from pyspark_pykafka.formats.protobuf_known_files import parse_descriptor_set

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_pykafka.formats.protobuf_definitions import ProtobufMessage, ProtobufSchema

#: A larger file is rejected: no column's schema is that large.
MAX_SCHEMA_BYTES = 16 << 20

# What protoc reports if an import is missing.
_MISSING_IMPORT = "File not found"


class ResolvedSchema(NamedTuple):
    """
    A FileDescriptorSet in base64, and the full name of the message in it.
    """

    text: str
    message: str


def missing_protobuf_mistake(column: str) -> str:
    """
    Return the error message for a column without a schema.
    """
    return (
        f"{column}Format is 'protobuf', but its schema is missing; set {column}Schema to the file "
        "that protoc --include_imports --descriptor_set_out=... writes, or to its bytes in base64, "
        "or set schema.registry.url if the records have schema ids"
    )


@lru_cache(maxsize=16)
def parsed_schema(text: str) -> ProtobufSchema:
    """
    Parse a resolved schema's text. Raises :class:`ProtobufSchemaError` if it is invalid.
    """
    return parse_descriptor_set(_from_base64(text))


def schema_from_option(column: str, text: str, message: str | None) -> ResolvedSchema:
    """
    Resolve the schema in the option of a column, ``key`` or ``value``.

    Raises :class:`OptionsError` if the schema cannot be read, or lacks the message.
    """
    try:
        data = _given_bytes(text)
        name = _message_name(parse_descriptor_set(data), message, column, needs_one=True)
    except ProtobufSchemaError as cause:
        advice = ""
        if _MISSING_IMPORT in str(cause):
            advice = (
                f"; compile it with its imports, and set {column}Schema to the file that "
                "protoc --include_imports --descriptor_set_out=... writes"
            )
        msg = f"{column}Schema is not a usable Protobuf schema: {cause}{advice}"
        raise OptionsError((msg,)) from cause
    return ResolvedSchema(base64.b64encode(data).decode(), name)


def registered_schema(
    column: str, text: str, imports: Sequence[tuple[str, str]], message: str | None
) -> ResolvedSchema:
    """
    Resolve a registry's schema and its imports. If ``message`` is None, the schema's first message
    is used.

    Raises :class:`ProtobufSchemaError` if the schema cannot be read, or lacks the message.
    """
    texts = [*imports, ("", text)]
    if all(not is_proto_text(content) for _, content in texts):
        data = descriptor_set([_from_base64(content) for _, content in texts])
    else:
        data = _compile(text, dict(imports))
    name = _message_name(parse_descriptor_set(data), message, column, needs_one=False)
    return ResolvedSchema(base64.b64encode(data).decode(), name)


def registered_message_names(text: str) -> list[MessageNames]:
    """
    Return the messages that a registry's schema defines.

    Raises :class:`ProtobufSchemaError` if the schema cannot be read.
    """
    if is_proto_text(text):
        return message_names(text)
    return [_names(message) for message in parse_files([_from_base64(text)]).roots]


def _names(message: ProtobufMessage) -> MessageNames:
    return MessageNames(message.name, message.is_map_entry, list(map(_names, message.nested)))


def is_proto_text(text: str) -> bool:
    """
    Return whether a schema is the text of a ``.proto`` file, and neither base64 nor a path.
    """
    return "{" in text or ";" in text


def _given_bytes(text: str) -> bytes:
    if is_proto_text(text):
        return _compile(text, {})
    # Base64 has no dot, and the names of descriptor files have one by convention.
    if "." in text or text.startswith("file:"):
        return _file(Path(text.removeprefix("file://").removeprefix("file:")))
    return _from_base64(text)


def _file(path: Path) -> bytes:
    try:
        is_too_large = path.stat().st_size > MAX_SCHEMA_BYTES
        data = b"" if is_too_large else path.read_bytes()
    except (OSError, ValueError) as cause:
        # A path with a null byte raises ValueError.
        reason = cause.strerror if isinstance(cause, OSError) else cause
        msg = f"the file '{path}' cannot be read on the driver ({reason})"
        raise ProtobufSchemaError(msg) from cause
    if is_too_large:
        msg = f"the file '{path}' has more than {MAX_SCHEMA_BYTES} bytes"
        raise ProtobufSchemaError(msg)
    return _compile(_decoded(path, data), {}) if path.suffix == ".proto" else data


def _decoded(path: Path, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as cause:
        msg = f"the file '{path}' is not UTF-8, as protoc requires; convert it"
        raise ProtobufSchemaError(msg) from cause


def _compile(text: str, imports: Mapping[str, str]) -> bytes:
    return _compile_once(text, tuple(imports.items()))


@lru_cache(maxsize=16)
def _compile_once(text: str, imports: tuple[tuple[str, str], ...]) -> bytes:
    # Cached because the writer of a stream needs the same schema in each micro-batch. Imported here
    # because it is rarely needed and imports many modules.
    from pyspark_pykafka.formats.protoc import compile_proto

    return compile_proto(text, dict(imports))


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.splitlines()), validate=True)
    except (binascii.Error, ValueError) as cause:
        msg = (
            "it is neither base64, nor the path of a file (with a dot in it, such as "
            "/schemas/orders.desc), nor the text of a .proto file"
        )
        raise ProtobufSchemaError(msg) from cause


def _message_name(
    schema: ProtobufSchema, message: str | None, column: str, *, needs_one: bool
) -> str:
    names = [root.name for root in schema.roots]
    if message is not None:
        schema.message(message)
        return message
    if not names:
        msg = "it defines no message"
        raise ProtobufSchemaError(msg)
    if needs_one and len(names) > 1:
        msg = f"set {column}MessageName to one of its messages: {', '.join(names[:20])}"
        raise ProtobufSchemaError(msg)
    return names[0]
