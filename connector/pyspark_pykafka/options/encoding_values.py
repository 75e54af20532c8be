"""
How keys and values are encoded by a write.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pyspark_pykafka.options.registry_values import BY_TOPIC, SubjectOptions

if TYPE_CHECKING:
    from pyspark_pykafka.options.registry_values import RegistryOptions

SchemaIdLocation = Literal["prefix", "header"]
EncodedFormat = Literal["raw", "text", "json", "avro", "protobuf"]


@dataclass(frozen=True, slots=True)
class EncodedColumnOptions:
    """
    How ``key`` or ``value`` is encoded.

    ``schema`` is the text of an Avro schema or a JSON Schema, the descriptor of Protobuf's
    ``message``, or None if the schema is derived from the column. With a registry, the schema is
    registered under ``subject``. If the subject has a version, or with ``uses_latest_version``, the
    registry's schema is used.
    """

    format: EncodedFormat = "raw"
    schema: str | None = None
    subject: SubjectOptions = BY_TOPIC
    uses_latest_version: bool = False
    message: str | None = None

    @property
    def uses_registered_schema(self) -> bool:
        """
        Whether the schema to encode with is taken from the registry.
        """
        return self.uses_latest_version or self.subject.version is not None


RAW = EncodedColumnOptions()


@dataclass(frozen=True, slots=True)
class EncodingOptions:
    """
    How a write encodes keys and values, whether it registers their schemas, and where it puts the
    schemas' ids.
    """

    value: EncodedColumnOptions = RAW
    key: EncodedColumnOptions = RAW
    registry: RegistryOptions | None = None
    auto_register: bool = True
    ignore_null_fields: bool = True
    schema_id_location: SchemaIdLocation = "prefix"

    @property
    def by_column(self) -> dict[str, EncodedColumnOptions]:
        """
        The options for ``key`` and ``value``, by these names.
        """
        return {"key": self.key, "value": self.value}

    @property
    def encodes(self) -> bool:
        """
        Whether keys or values are encoded, rather than written as they are.
        """
        return any(column.format != "raw" for column in self.by_column.values())


#: Keys and values that are written as they are.
UNENCODED = EncodingOptions()
