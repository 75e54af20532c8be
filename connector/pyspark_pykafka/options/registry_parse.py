"""
Parses the options of a schema registry, and reports those that contradict each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

from pyspark_pykafka.options.registry_table import (
    BEARER_TOKEN,
    CA_LOCATION,
    CERTIFICATE_LOCATION,
    CREDENTIALS_SOURCE,
    ID_BYTES,
    KEY_LOCATION,
    KEY_PASSWORD,
    KEY_SUBJECT_OPTIONS,
    REGISTRY_OPTIONS,
    REGISTRY_TIMEOUT,
    REGISTRY_URL,
    REQUEST_TIMEOUT,
    USER_INFO,
    VALUE_SUBJECT_OPTIONS,
)
from pyspark_pykafka.options.registry_values import RegistryOptions, SubjectOptions

if TYPE_CHECKING:
    from pyspark_pykafka.options.option_reader import OptionReader


def read_registry(reader: OptionReader) -> RegistryOptions | None:
    """
    Return how to reach the registry, or None without ``schema.registry.url``.

    Adds options that contradict each other to ``reader.mistakes``.
    """
    urls = reader.find(REGISTRY_URL)
    if not reader.has(REGISTRY_URL):
        reader.mistakes += [
            f"{option.name} is set, but schema.registry.url is missing; set it to the URL of the "
            "registry"
            for option in REGISTRY_OPTIONS
            if reader.has(option)
        ]
        return None
    if urls is None:
        return None
    user_info, token = _user_info(reader, urls), reader.find(BEARER_TOKEN)
    if token is not None and user_info is not None:
        reader.mistakes.append(
            "schema.registry.bearer.auth.token and a user with a password are set; use one of them"
        )
    _check_client_key(reader)
    return RegistryOptions(
        tuple(map(_without_credentials, urls)),
        user_info,
        token,
        reader.find(CA_LOCATION),
        reader.find(CERTIFICATE_LOCATION),
        reader.find(KEY_LOCATION),
        reader.find(KEY_PASSWORD),
        reader.get(REQUEST_TIMEOUT),
        reader.get(REGISTRY_TIMEOUT),
        int(reader.get(ID_BYTES)),
    )


def _check_client_key(reader: OptionReader) -> None:
    if reader.find(CERTIFICATE_LOCATION) is not None:
        return
    if reader.find(KEY_LOCATION) is not None or reader.has(KEY_PASSWORD):
        reader.mistakes.append(
            "schema.registry.ssl.key.location or .password is set, but "
            "schema.registry.ssl.certificate.location is missing; set it to the certificate"
        )


def _user_info(reader: OptionReader, urls: tuple[str, ...]) -> tuple[str, str] | None:
    from_option = reader.find(USER_INFO)
    in_urls = [
        (unquote(parts.username or ""), unquote(parts.password or ""))
        for parts in map(urlsplit, urls)
        if parts.username is not None
    ]
    if reader.get(CREDENTIALS_SOURCE) == "URL":
        if not in_urls or from_option is not None:
            reader.mistakes.append(
                "schema.registry.basic.auth.credentials.source is 'URL'; then the URL must have "
                "the user and the password, and schema.registry.basic.auth.user.info must be unset"
            )
        return in_urls[0] if in_urls else from_option
    if in_urls:
        reader.mistakes.append(
            "schema.registry.url has a user and a password; set "
            "schema.registry.basic.auth.credentials.source to URL, or give them in "
            "schema.registry.basic.auth.user.info"
        )
    return from_option


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def read_subject(reader: OptionReader, column: str) -> SubjectOptions:
    """
    Return where the schema of ``key`` or ``value`` is.
    """
    options = VALUE_SUBJECT_OPTIONS if column == "value" else KEY_SUBJECT_OPTIONS
    name, version, strategy, record_name = options
    subject = SubjectOptions(
        reader.find(name), reader.find(version), reader.get(strategy), reader.find(record_name)
    )
    if subject.name is not None and (reader.has(strategy) or reader.has(record_name)):
        reader.mistakes.append(
            f"{name.name} is set together with {strategy.name} or {record_name.name}, which name a "
            "subject too; remove one of them"
        )
    needs_record = subject.name is None and subject.strategy != "TopicNameStrategy"
    if needs_record and subject.record_name is None:
        reader.mistakes.append(
            f"{strategy.name} is '{subject.strategy}', but {record_name.name} is missing; set it "
            "to the full name of the record, such as com.shop.Order"
        )
    if subject.name is None and subject.record_name is not None and not needs_record:
        reader.mistakes.append(
            f"{record_name.name} is set, but {strategy.name} is '{subject.strategy}'; it must be: "
            "RecordNameStrategy or TopicRecordNameStrategy"
        )
    return subject
