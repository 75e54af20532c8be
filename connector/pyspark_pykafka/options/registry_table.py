"""
The options of a schema registry, declared.

The options of the registry's client have the prefix ``schema.registry.`` and, if Confluent's client
has the setting, Confluent's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pyspark_pykafka.options.option import Option, Scope
from pyspark_pykafka.options.value_parsers import (
    BOOLEAN,
    CREDENTIALS,
    TEXT,
    InvalidOptionError,
    Parser,
    one_of,
    whole_number,
)

if TYPE_CHECKING:
    from pyspark_pykafka.options.encoding_values import SchemaIdLocation
    from pyspark_pykafka.options.registry_values import SubjectNameStrategy


#: The limit of DNS for each part of a host name.
_MAX_LABEL_BYTES = 63


def _read_urls(text: str) -> tuple[str, ...]:
    urls = tuple(url.strip().rstrip("/") for url in text.split(",") if url.strip())
    try:
        valid = [_is_url(url) for url in urls]
    except ValueError as cause:
        msg = "it must be: URLs with a port of at most 65535"
        raise InvalidOptionError(msg) from cause
    if not urls or not all(valid):
        raise ValueError
    return urls


def _is_url(url: str) -> bool:
    parts = urlsplit(url)
    is_plain_url = not (parts.query or parts.fragment) and url.isprintable() and " " not in url
    return (
        parts.scheme in {"http", "https"}
        and _is_host(parts.hostname or "")
        and parts.port != 0
        and parts.path.isascii()
        and is_plain_url
    )


def _is_host(host: str) -> bool:
    if ":" in host:
        return True
    try:
        labels = host.encode("ascii" if host.isascii() else "idna").rstrip(b".").split(b".")
    except UnicodeError:
        return False
    return all(0 < len(label) <= _MAX_LABEL_BYTES for label in labels)


def _read_token(text: str) -> str:
    token = text.strip()
    if not (token and token.isascii() and token.isprintable()):
        raise ValueError
    return token


def _read_strategy(text: str) -> SubjectNameStrategy:
    return _STRATEGY(text.rpartition(".")[2])


_STRATEGY: Parser[SubjectNameStrategy] = one_of(
    "TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy"
)

REGISTRY_URL = Option(
    "schema.registry.url",
    Parser(_read_urls, "URLs of one schema registry, such as http://host:8081,http://host2:8081"),
    "The schema registry: the URLs of its API. If one does not answer, the next one is used. "
    "Values with `valueFormat` `avro`, `json` or `protobuf`, and keys, then have the form of "
    "Confluent's or Apicurio's serializers. See [Schema Registry](schema-registry.md).",
    Scope.ALL,
    secret=True,
)
CREDENTIALS_SOURCE = Option(
    "schema.registry.basic.auth.credentials.source",
    one_of("USER_INFO", "URL"),
    "Where the user and the password for the registry are: in "
    "`schema.registry.basic.auth.user.info`, or in the URL.",
    Scope.ALL,
    default="USER_INFO",
)
USER_INFO = Option(
    "schema.registry.basic.auth.user.info",
    CREDENTIALS,
    "User and password for the registry.",
    Scope.ALL,
    secret=True,
)
BEARER_SOURCE = Option(
    "schema.registry.bearer.auth.credentials.source",
    one_of("STATIC_TOKEN"),
    "Where the bearer token for the registry is: in `schema.registry.bearer.auth.token`.",
    Scope.ALL,
    default="STATIC_TOKEN",
)
BEARER_TOKEN = Option(
    "schema.registry.bearer.auth.token",
    Parser(_read_token, "printable ASCII characters"),
    "A bearer token for the registry.",
    Scope.ALL,
    secret=True,
)
CA_LOCATION = Option(
    "schema.registry.ssl.ca.location",
    TEXT,
    "A PEM file with the certificate authorities to trust for the registry, on the driver and the "
    "executors. The default is the system's authorities.",
    Scope.ALL,
)
CERTIFICATE_LOCATION = Option(
    "schema.registry.ssl.certificate.location",
    TEXT,
    "A PEM file with the client's certificate for the registry.",
    Scope.ALL,
)
KEY_LOCATION = Option(
    "schema.registry.ssl.key.location",
    TEXT,
    "A PEM file with the private key, if the file of `schema.registry.ssl.certificate.location` "
    "does not contain it.",
    Scope.ALL,
)
KEY_PASSWORD = Option(
    "schema.registry.ssl.key.password",
    TEXT,
    "The password of that key.",
    Scope.ALL,
    secret=True,
)
REQUEST_TIMEOUT = Option(
    "schema.registry.request.timeout.ms",
    whole_number(1),
    "How long to wait for one response of the registry, in milliseconds.",
    Scope.ALL,
    default="10000",
)
REGISTRY_TIMEOUT = Option(
    "schema.registry.timeout.ms",
    whole_number(1),
    "How long to repeat a request to the registry, at all of its URLs, before the task fails, in "
    "milliseconds.",
    Scope.ALL,
    default="60000",
)
ID_BYTES = Option(
    "schema.registry.id.bytes",
    one_of("4", "8"),
    "The size of the schema's id before a key or value: 4 bytes in Confluent's form, 8 in that of "
    "older Apicurio serializers.",
    Scope.READ,
    default="4",
)


AUTO_REGISTER = Option(
    "autoRegister",
    BOOLEAN,
    "Register the schemas of encoded keys and values (Confluent's `auto.register.schemas`). If "
    "false, the subject must have them.",
    Scope.WRITE,
    default="true",
)
USE_LATEST_VERSION = Option(
    "useLatestVersion",
    BOOLEAN,
    "Encode keys and values with the latest schema of their subject, and register none "
    "(Confluent's `use.latest.version`).",
    Scope.WRITE,
    default="false",
)
SCHEMA_ID_LOCATION: Option[SchemaIdLocation] = Option(
    "schemaIdLocation",
    one_of("prefix", "header"),
    "Where a write puts the id of a schema: `prefix`, a number before the key or value; or "
    "`header`, a GUID in the header `__key_schema_id` or `__value_schema_id` (Confluent's "
    "`HeaderSchemaIdSerializer`).",
    Scope.WRITE,
    default="prefix",
)


def _subject(column: str) -> tuple[Option[Any], Option[Any], Option[Any], Option[Any]]:
    return (
        Option(
            f"{column}Subject",
            TEXT,
            f"The registry's subject with the schema for reading or writing `{column}`. By "
            f"default `{column}SubjectNameStrategy` determines it.",
            Scope.ALL,
        ),
        Option(
            f"{column}SubjectVersion",
            whole_number(1),
            "The version of that subject. By default a read takes the latest when the query "
            "starts, and a write registers its own.",
            Scope.ALL,
        ),
        Option(
            f"{column}SubjectNameStrategy",
            Parser(_read_strategy, _STRATEGY.expected),
            f"How the subject of `{column}` is named: `TopicNameStrategy` is `<topic>-{column}`, "
            f"`RecordNameStrategy` is `{column}RecordName`, and `TopicRecordNameStrategy` is "
            "`<topic>-` and that name.",
            Scope.ALL,
            default="TopicNameStrategy",
        ),
        Option(
            f"{column}RecordName",
            TEXT,
            f"The full name of the record, for `{column}SubjectNameStrategy`; in a write also that "
            "of a schema that is derived from the column.",
            Scope.ALL,
        ),
    )


VALUE_SUBJECT_OPTIONS = _subject("value")
KEY_SUBJECT_OPTIONS = _subject("key")

#: The options for the registry's client, and for the ids and the registration of schemas.
CLIENT_OPTIONS: tuple[Option[Any], ...] = (
    REGISTRY_URL,
    CREDENTIALS_SOURCE,
    USER_INFO,
    BEARER_SOURCE,
    BEARER_TOKEN,
    CA_LOCATION,
    CERTIFICATE_LOCATION,
    KEY_LOCATION,
    KEY_PASSWORD,
    REQUEST_TIMEOUT,
    REGISTRY_TIMEOUT,
    ID_BYTES,
    AUTO_REGISTER,
    USE_LATEST_VERSION,
    SCHEMA_ID_LOCATION,
)
#: All options of this module, in the order of docs/options.md.
REGISTRY_OPTIONS: tuple[Option[Any], ...] = (
    *CLIENT_OPTIONS,
    *VALUE_SUBJECT_OPTIONS,
    *KEY_SUBJECT_OPTIONS,
)
