"""
The ``.proto`` files of Google and Confluent that schema registries provide themselves, so that
schemas may import them without a reference.

These are the files that Confluent's registry knows: ``google/protobuf``, ``google/type`` and
``confluent``. Their descriptors are a part of the package, because Protobuf's own library, which
has some of them, is not used.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyspark_pykafka.formats.protobuf_descriptors import (
    described_files,
    descriptor_set,
    parse_files,
)

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from pyspark_pykafka.formats.protobuf_definitions import ProtobufSchema
    from pyspark_pykafka.formats.protobuf_descriptors import DescribedFile

# protoc has these itself, in its own version.
_OF_PROTOC = "google/protobuf/"


@lru_cache(maxsize=1)
def known_files() -> Mapping[str, DescribedFile]:
    """
    Return the known files by path, each after its imports.
    """
    # Written by scripts/known_protos.py.
    data = (files("pyspark_pykafka.formats") / "known_protos.binpb").read_bytes()
    return MappingProxyType({file.name: file for file in described_files(data)})


def files_for_protoc(names: Container[str]) -> bytes:
    """
    Return the FileDescriptorSet of the known files that ``protoc`` lacks, except for ``names``.
    """
    return descriptor_set(
        [
            file.data
            for file in known_files().values()
            if not file.name.startswith(_OF_PROTOC) and file.name not in names
        ]
    )


def parse_descriptor_set(data: bytes) -> ProtobufSchema:
    """
    Parse a FileDescriptorSet, whose last file is the requested one; its imports precede it, except
    for known files, which may be missing.

    Raises :class:`ProtobufSchemaError` if ``data`` is not a FileDescriptorSet.
    """
    described = described_files(data)
    # The set's own definitions come last, and so replace those of the known files.
    return parse_files([file.data for file in (*_missing(described), *described)])


def _missing(described: Sequence[DescribedFile]) -> list[DescribedFile]:
    """
    Return the known files that ``described`` lacks, but imports directly or indirectly.
    """
    needed: set[str] = set()
    present = {file.name for file in described}
    pending = [name for file in described for name in file.imports]
    while pending:
        name = pending.pop()
        if name in known_files() and name not in present | needed:
            needed.add(name)
            pending += known_files()[name].imports
    return [file for name, file in known_files().items() if name in needed]
