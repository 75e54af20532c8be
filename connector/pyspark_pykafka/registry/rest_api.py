"""
The paths, bodies and responses of Confluent's API and of Apicurio's own API. Pure: no I/O.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from pyspark_pykafka.registry.errors import (
    IncompatibleSchemaError,
    InvalidSchemaError,
    SchemaNotFoundError,
    SchemaRegistryError,
)
from pyspark_pykafka.registry.schemas import SCHEMA_TYPES, Schema, SchemaReference

if TYPE_CHECKING:
    from pyspark_pykafka.registry.http import Response

_NOT_FOUND = frozenset({40401, 40402, 40403})
_REJECTED = frozenset({409, 42201, 42202, 42203})

# At most as many digits as a signed number of 64 bits has.
_NUMBER = re.compile(r"[0-9]{1,19}")

# The context before the name of a subject, as in ``:.prod:orders-value``.
_CONTEXT = re.compile(r":\.[^:]*:")

#: The path at the end of a URL of Apicurio's own API, or of its ``ccompat`` API.
APICURIO_PATH = re.compile(r"/apis/(ccompat|registry)/v\d+/?$")


def is_missing(response: Response) -> bool:
    """
    Return whether the registry itself reports that it lacks the requested schema.

    A 404 of a proxy, or of an older registry without this path, does not count.
    """
    if response.status != 404:
        return False
    if response.error_code in _NOT_FOUND:
        return True
    document = response.document
    return isinstance(document, dict) and str(document.get("name", "")).endswith(
        "NotFoundException"
    )


def failed_request_error(response: Response, resource: str) -> SchemaRegistryError:
    """
    Return the error for an unsuccessful response; ``resource`` describes what was requested.
    """
    code = response.error_code or response.status
    if is_missing(response):
        msg = f"the schema registry does not know {resource}: {response.message}"
        return SchemaNotFoundError(msg, code)
    if code in _REJECTED or response.status == 409:
        msg = f"the schema registry does not accept {resource}: {response.message}"
        return IncompatibleSchemaError(msg, code)
    msg = (
        f"the schema registry responds with HTTP {response.status} for {resource}: "
        f"{response.message}; check that schema.registry.url is the URL of its API"
    )
    return SchemaRegistryError(msg, code)


def registry_url(url: str) -> str:
    """
    Return the URL of the Confluent-compatible API, also for a URL of Apicurio's own API.
    """
    if (match := APICURIO_PATH.search(url)) and match[1] == "registry":
        return f"{url[: match.start()]}/apis/ccompat/v7"
    return url


def apicurio_url(url: str) -> str:
    """
    Return the URL of Apicurio's own API, also for a URL of its ``ccompat`` API.
    """
    match = APICURIO_PATH.search(url)
    return f"{url[: match.start()]}/apis/registry/v2" if match else url


def with_query(path: str, **parameters: str) -> str:
    """
    Return the path with the query parameters that are not empty.
    """
    query = urlencode({name: value for name, value in parameters.items() if value})
    return f"{path}?{query}" if query else path


def in_context_of(parent: str, subject: str) -> str:
    """
    Return a subject with the context of ``parent``, unless the subject has a context of its own.

    As in Confluent's clients: a schema of ``:.prod:orders-value`` that refers to the subject
    ``customer`` refers to ``:.prod:customer``.
    """
    context = _CONTEXT.match(parent)
    return subject if context is None or _CONTEXT.match(subject) else context[0] + subject


def path_part(name: str) -> str:
    """
    Return a subject's name, quoted as one segment of a path.
    """
    return quote(name, safe="")


def schema_body(schema: Schema) -> dict[str, Any]:
    """
    Return the body of a request to register or look up a schema.
    """
    body: dict[str, Any] = {"schema": schema.text}
    if schema.schema_type != "AVRO":
        body["schemaType"] = schema.schema_type
    if schema.references:
        body["references"] = [
            {"name": r.name, "subject": r.subject, "version": r.version} for r in schema.references
        ]
    return body


def read_references(listed: Any, subject: str = "subject") -> tuple[SchemaReference, ...]:
    """
    Return the references in a response; ``subject`` is the name of the field with the subject.

    Raises :class:`InvalidSchemaError` if they cannot be read.
    """
    try:
        return tuple(
            SchemaReference(str(r["name"]), str(r[subject]), int(r["version"]))
            for r in listed or ()
        )
    except (KeyError, TypeError, ValueError) as cause:
        msg = "the schema registry's response has references that cannot be read"
        raise InvalidSchemaError(msg) from cause


def read_schema_type(name: Any, resource: str) -> Any:
    """
    Return the type of a schema: AVRO (also if the response has none), JSON or PROTOBUF.

    Raises :class:`InvalidSchemaError` for any other type.
    """
    schema_type = name or "AVRO"
    if not isinstance(schema_type, str) or schema_type not in SCHEMA_TYPES.values():
        msg = (
            f"the schema registry's schema of {resource} has the type {schema_type!s:.50}; "
            "it must be: "
        )
        raise InvalidSchemaError(msg + ", ".join(sorted(SCHEMA_TYPES.values())))
    return schema_type


def read_number(document: dict[str, Any], name: str) -> int:
    """
    Return a field of a response if it is a whole number from 0 on, or the text of one. Otherwise
    return -1.
    """
    value = document.get(name)
    return int(value) if isinstance(value, int | str) and _NUMBER.fullmatch(str(value)) else -1
