"""
Registers the files of a written Protobuf message, and finds the message's index in its file.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.formats.protobuf_descriptors import described_files
from pyspark_pykafka.formats.protobuf_known_files import known_files
from pyspark_pykafka.formats.protobuf_schemas import parsed_schema
from pyspark_pykafka.registry.errors import SchemaRegistryError
from pyspark_pykafka.registry.rest_api import in_context_of
from pyspark_pykafka.registry.schemas import Schema, SchemaReference
from pyspark_pykafka.varint import zigzag_varint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_pykafka.formats.protobuf_definitions import ProtobufMessage
    from pyspark_pykafka.formats.protobuf_descriptors import DescribedFile
    from pyspark_pykafka.registry.schemas import RegisteredSchema

    #: Registers a schema under a subject, or looks it up there.
    SchemaRequest = Callable[[str, Schema], RegisteredSchema]


def register_files(
    text: str, subject: str, request: SchemaRequest, look_up: SchemaRequest
) -> RegisteredSchema:
    """
    Register or look up the last file of a descriptor set, after its imports; ``text`` is the set in
    base64.

    As in Confluent's serializers, the subject of an import is its path, in the context of
    ``subject``. Raises the errors of the registry's client.
    """
    *others, last = described_files(base64.b64decode(text))
    references: dict[str, tuple[SchemaReference, ...]] = {}
    for file in _imported(last, others):
        if file.name in known_files():
            continue
        schema = _schema(file.data, _direct_references(file.imports, references))
        imported = in_context_of(subject, file.name)
        registered = request(imported, schema)
        # Older registries do not return the version of a schema that is registered.
        version = (
            registered.version if registered.version >= 0 else look_up(imported, schema).version
        )
        if version < 0:
            msg = f"the schema registry's response for subject '{imported}' has no version"
            raise SchemaRegistryError(msg)
        references[file.name] = (SchemaReference(file.name, imported, version),)
    return request(subject, _schema(last.data, _direct_references(last.imports, references)))


def _imported(last: DescribedFile, others: Sequence[DescribedFile]) -> list[DescribedFile]:
    """
    Return those of ``others`` that the last file imports, directly or indirectly, in their order.
    """
    by_name = {file.name: file for file in others}
    needed: set[str] = set()
    pending = [*last.imports]
    while pending:
        name = pending.pop()
        if name in by_name and name not in needed:
            needed.add(name)
            pending += by_name[name].imports
    return [file for file in others if file.name in needed]


def _direct_references(
    imports: Sequence[str], references: dict[str, tuple[SchemaReference, ...]]
) -> tuple[SchemaReference, ...]:
    return tuple(reference for name in imports for reference in references.get(name, ()))


def _schema(data: bytes, references: tuple[SchemaReference, ...]) -> Schema:
    return Schema(base64.b64encode(data).decode(), "PROTOBUF", references)


def message_index(column: str, text: str, message: str) -> bytes:
    """
    Return a message's index, which follows the schema id: the number of levels, and the position
    at each level. A single 0 stands for the first message.

    Raises :class:`OptionsError` if the last file of the descriptors does not define the message.
    """
    path = _path(parsed_schema(text).roots, message)
    if path is None:
        msg = (
            f"the message '{message}' is in an import of the schema of {column}, and not in the "
            f"schema itself; set {column}MessageName to a message of the schema"
        )
        raise OptionsError((msg,))
    if path == (0,):
        return b"\x00"
    return b"".join(zigzag_varint(number) for number in (len(path), *path))


def _path(messages: Sequence[ProtobufMessage], name: str) -> tuple[int, ...] | None:
    for index, message in enumerate(messages):
        if message.name == name:
            return (index,)
        if (inner := _path(message.nested, name)) is not None:
            return (index, *inner)
    return None
