"""
The errors of the schema registry's client.

An unknown schema can make a record bad. An unreachable registry never does: its error is retriable.
"""

from __future__ import annotations

from pyspark_pykafka.errors import PykafkaError


class SchemaRegistryError(PykafkaError):
    """
    The registry rejects a request, or its response cannot be used.

    ``code`` is the registry's error code, such as 42201, the HTTP status, or 0.
    """

    condition = "SCHEMA_REGISTRY_ERROR"

    def __init__(self, message: str, code: int = 0) -> None:
        self.message = message
        self.code = code
        super().__init__(message, code)

    def _text(self) -> str:
        return self.message


class SchemaNotFoundError(SchemaRegistryError):
    """
    The registry responds that it does not have the schema, the subject or the version.
    """

    condition = "SCHEMA_NOT_FOUND"


class InvalidSchemaError(SchemaRegistryError):
    """
    A registered schema cannot be used: its type is unknown, or its references cannot be resolved.
    """

    condition = "INVALID_SCHEMA"


class IncompatibleSchemaError(SchemaRegistryError):
    """
    The registry rejects a new schema: it is invalid, or incompatible with earlier versions.
    """

    condition = "INCOMPATIBLE_SCHEMA"


class RegistryUnavailableError(PykafkaError):
    """
    No URL of the registry returned a usable response before the deadline; the message lists the
    URLs.
    """

    condition = "SCHEMA_REGISTRY_UNAVAILABLE"
    retriable = True
