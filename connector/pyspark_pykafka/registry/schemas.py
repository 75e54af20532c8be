"""
Schemas as a registry keeps them. Values without I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SchemaKind = Literal["AVRO", "JSON", "PROTOBUF"]


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """
    A schema that another one refers to: ``name`` is what the other calls it.

    For Avro the name is that of a type, for Protobuf the path of an import, for JSON a URL.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """
    A schema's text with its kind, and the references that it needs: what one registers.
    """

    text: str
    kind: SchemaKind = "AVRO"
    references: tuple[SchemaReference, ...] = ()


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """
    A schema that the registry knows.

    ``imports`` has (name, schema) for everything that it refers to, directly or not, each after
    those that it needs itself. ``id`` is the number that stands before records, and ``guid`` the
    UUID that stands in their headers; -1 and ``""`` if the registry's answer did not have them, as
    ``subject`` and ``version`` are for a schema that was looked up by its id.
    """

    schema: Schema
    id: int = -1
    guid: str = ""
    subject: str = ""
    version: int = -1
    imports: tuple[tuple[str, Schema], ...] = ()
