"""
What can go wrong with a schema registry.

An unknown schema and an unreachable registry are different things: the first may make a record bad,
the second never does, and is worth another attempt.
"""

from __future__ import annotations

from pyspark_pykafka.errors import PykafkaError


class SchemaRegistryError(PykafkaError):
    """
    The registry refuses a request; ``code`` is its error code, such as 409 or 42201, or HTTP's.
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
    The registry answers, and does not know the schema, the subject or the version.
    """

    condition = "SCHEMA_NOT_FOUND"


class InvalidSchemaError(SchemaRegistryError):
    """
    The registry has a schema that nobody can use: of an unknown kind, or with endless references.
    """

    condition = "INVALID_SCHEMA"


class IncompatibleSchemaError(SchemaRegistryError):
    """
    The registry does not register a schema: it is invalid, or incompatible with earlier versions.
    """

    condition = "INCOMPATIBLE_SCHEMA"


class RegistryUnavailableError(PykafkaError):
    """
    No URL of the registry gave a usable answer before the deadline; the text names them.
    """

    condition = "SCHEMA_REGISTRY_UNAVAILABLE"
    retriable = True
