"""
The values of the registry's API: schemas, references and registered schemas. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SchemaType = Literal["AVRO", "JSON", "PROTOBUF"]
#: The type of a schema by the format of its keys or values.
SCHEMA_TYPES: dict[str, SchemaType] = {"avro": "AVRO", "json": "JSON", "protobuf": "PROTOBUF"}


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """
    A reference from one schema to another; ``name`` is the name in the referring schema.

    The name is a type's name in Avro, the path of an import in Protobuf, and a URL in JSON Schema.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """
    The text, the type and the references of a schema, as it is registered.
    """

    text: str
    schema_type: SchemaType = "AVRO"
    references: tuple[SchemaReference, ...] = ()


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """
    A schema in the registry.

    ``imports`` has (name, schema) for every direct and indirect reference, in dependency order.
    ``id`` is the number that precedes values, and ``guid`` the UUID in their headers. Fields that
    the registry did not return are -1 or ``""``, such as ``subject`` and ``version`` after a lookup
    by id.
    """

    schema: Schema
    id: int = -1
    guid: str = ""
    subject: str = ""
    version: int = -1
    imports: tuple[tuple[str, Schema], ...] = ()
