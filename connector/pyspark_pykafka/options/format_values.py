"""
How the keys and values of a read are decoded, as options specify it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyspark_pykafka.options.registry_values import BY_TOPIC, RegistryOptions, SubjectOptions

ValueFormat = Literal["raw", "text", "json", "avro", "protobuf", "debezium-json", "debezium-avro"]
OnBadRecord = Literal["fail", "null", "rescue", "deadletter"]


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """
    How keys and values are decoded.

    The schemas are the DDL of a type for JSON, the text of an Avro schema for Avro, or None. With a
    registry, an Avro schema is the reader's schema, and a schema that is None is looked up under
    its subject. For Protobuf the schemas are the user's text, or the descriptors that the text was
    resolved to, with the message's full name. For ``debezium-json`` the schema is the type of a
    row, for ``debezium-avro`` the schema of the envelope.
    """

    value_format: ValueFormat = "raw"
    key_format: ValueFormat = "raw"
    value_schema: str | None = None
    key_schema: str | None = None
    flatten: bool = False
    on_bad_record: OnBadRecord = "fail"
    max_bad_records: int | None = None
    dead_letter_topic: str | None = None
    registry: RegistryOptions | None = None
    value_subject: SubjectOptions = BY_TOPIC
    key_subject: SubjectOptions = BY_TOPIC
    value_message: str | None = None
    key_message: str | None = None
    debezium_rows: bool = False
    drops_tombstones: bool = False
    rescues_unknown_fields: bool = False

    @property
    def by_column(self) -> dict[str, ValueFormat]:
        """
        The formats by the record's column.
        """
        return {"key": self.key_format, "value": self.value_format}

    @property
    def encodings(self) -> dict[str, str]:
        """
        The encodings by the record's column: for Debezium, ``json`` or ``avro``.
        """
        return {name: kind.removeprefix("debezium-") for name, kind in self.by_column.items()}

    @property
    def schemas(self) -> dict[str, str | None]:
        """
        The schemas by the record's column.
        """
        return {"key": self.key_schema, "value": self.value_schema}

    @property
    def messages(self) -> dict[str, str | None]:
        """
        The names of Protobuf messages by the record's column.
        """
        return {"key": self.key_message, "value": self.value_message}

    @property
    def subjects(self) -> dict[str, SubjectOptions]:
        """
        Where the schemas are in the registry, by the record's column.
        """
        return {"key": self.key_subject, "value": self.value_subject}


#: Keys and values are not decoded.
UNDECODED = FormatOptions()
