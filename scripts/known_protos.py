"""
Writes the descriptors of the ``.proto`` files that schema registries provide themselves.

They are taken from the packages of Google and Confluent that the tests need. Run this if one of
these files changes: ``python scripts/known_protos.py``.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf import descriptor_pb2

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor

TARGET = Path(__file__).parents[1] / "connector/pyspark_pykafka/formats/known_protos.binpb"

_CONFLUENT = "confluent_kafka.schema_registry.confluent."
_GOOGLE = (
    *("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct"),
    *("timestamp", "type", "wrappers"),
)
_TYPES = (
    *("calendar_period", "color", "date", "datetime", "dayofweek", "decimal", "expr", "fraction"),
    *("interval", "latlng", "money", "month", "phone_number", "postal_address", "quaternion"),
    "timeofday",
)
MODULES = (
    *(f"google.protobuf.{name}_pb2" for name in _GOOGLE),
    *(f"google.type.{name}_pb2" for name in _TYPES),
    # Confluent's decimal has two paths: ``types.decimal`` is the older one.
    *(f"{_CONFLUENT}{name}_pb2" for name in ("meta", "type.decimal", "type.variant")),
    f"{_CONFLUENT}types.decimal_pb2",
)


def known_protos() -> bytes:
    """
    Return a FileDescriptorSet in which each file follows its imports, without the files' options.
    """
    files = descriptor_pb2.FileDescriptorSet()
    names: set[str] = set()
    for module in MODULES:
        _add(import_module(module).DESCRIPTOR, files, names)
    data: bytes = files.SerializeToString(deterministic=True)
    return data


def _add(file: FileDescriptor, files: descriptor_pb2.FileDescriptorSet, names: set[str]) -> None:
    if file.name in names:
        return
    names.add(file.name)
    for imported in file.dependencies:
        _add(imported, files, names)
    added = files.file.add()
    file.CopyToProto(added)
    added.ClearField("options")


if __name__ == "__main__":
    TARGET.write_bytes(known_protos())
