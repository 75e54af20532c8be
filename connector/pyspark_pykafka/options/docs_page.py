"""
The page docs/options.md, generated from the tables that parsing uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_pykafka.options.option import Option, Scope, scope_names
from pyspark_pykafka.options.table import OPTIONS
from pyspark_pykafka.settings import (
    ALIASES,
    CONNECTOR_SETTINGS,
    IGNORED,
    JAVA_ALIASES,
    LEVELS,
    REJECTED,
    Role,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_HEAD = """\
<!-- Written by `python -m pyspark_pykafka.options > docs/options.md`; do not edit. -->

# Options

Option names and keyword values are case-insensitive. An unknown option, an invalid value, or an
option that does not apply to the kind of query is an error; one error lists all mistakes.
"""

_READING = """\
A read needs `kafka.bootstrap.servers` and exactly one of `assign`, `subscribe` and
`subscribePattern`.
"""

_KAFKA = """\
## kafka.*

Options that start with `kafka.` go to the Kafka client without that prefix. Both librdkafka's names
and the Java client's are accepted, subject to the tables below. `kafka.bootstrap.servers` is
mandatory. The connector logs and prints only values known to be harmless, never passwords or
keys. Spark prints some options, so [mask credentials](deploying.md#credentials-in-sparks-output).

These defaults are the Java client's, not librdkafka's: `isolation.level=read_uncommitted`,
`check.crcs=true`, `enable.idempotence=true`, `partitioner=murmur2_random`,
`delivery.timeout.ms=120000`, `message.max.bytes=1048576`, `request.timeout.ms=30000`. With
`latestPerKey` the isolation level is `read_committed`.
"""

_ALSO_TRANSLATED = (
    ("request.timeout.ms", "also `socket.timeout.ms`"),
    (
        "sasl.jaas.config",
        (
            "`sasl.username` and `sasl.password` (PlainLoginModule, ScramLoginModule), "
            "`sasl.kerberos.*` (Krb5LoginModule) or `sasl.oauthbearer.*` (OAuthBearerLoginModule)"
        ),
    ),
    (
        "ssl.keystore.location",
        (
            "unchanged for PKCS#12; `ssl.certificate.location` and `ssl.key.location` for PEM; "
            "JKS is rejected"
        ),
    ),
    ("ssl.truststore.location", "`ssl.ca.location` for PEM; JKS and PKCS#12 are rejected"),
    (
        "partitioner.class",
        "`partitioner=murmur2_random` for DefaultPartitioner; others are rejected",
    ),
    ("partitioner.ignore.keys", "`partitioner=random` if true"),
)


def page() -> str:
    """
    Return the whole page as Markdown.
    """
    reading = [option for option in OPTIONS if option.scope & Scope.READ]
    writing = [option for option in OPTIONS if option.scope & Scope.WRITE]
    parts = [
        _HEAD,
        f"## Reading\n\n{_READING}",
        _table(("Option", "Value", "Default", "In", "Meaning"), map(_row, reading)),
        "## Writing\n",
        _table(("Option", "Value", "Default", "In", "Meaning"), map(_row, writing)),
        _KAFKA,
        "### Translated\n",
        _table(("Java client", "librdkafka"), _translated()),
        "### Handled by the connector\n",
        _table(
            ("Setting", "Default"),
            ((_code(name), str(ms)) for name, ms in CONNECTOR_SETTINGS.items()),
        ),
        "### Rejected\n",
        _table(("Setting", "In", "Reason"), _rejected()),
        "### Ignored\n",
        f"These have no effect; their names are logged once, at `INFO`: {_list(IGNORED)}.\n",
    ]
    return "\n".join(parts)


def _row(option: Option[Any]) -> tuple[str, ...]:
    return (
        _code(option.name),
        option.parser.expected,
        _default(option),
        "all queries" if option.scope == Scope.ALL else scope_names(option.scope),
        option.description + _remarks(option),
    )


def _default(option: Option[Any]) -> str:
    if option.default is None:
        return ""
    if option.stream_default is None:
        return _code(option.default)
    return f"{_code(option.default)}; streaming: {_code(option.stream_default)}"


def _remarks(option: Option[Any]) -> str:
    if not option.no_effect:
        return ""
    return f" No effect in a {scope_names(option.no_effect).replace(', ', ' or ')}."


def _translated() -> Iterator[tuple[str, str]]:
    for name, (target, _) in JAVA_ALIASES.items():
        if name != target:
            yield _code(name), _code(target)
    for name in LEVELS:
        yield _code(name), _code("compression.level")
    for name, text in _ALSO_TRANSLATED:
        yield _code(name), text
    for alias, name in ALIASES.items():
        yield f"{_code(alias)} (librdkafka's)", _code(name)


def _rejected() -> Iterator[tuple[str, str, str]]:
    roles = {Role.ANY: "read, write", Role.CONSUMER: "read", Role.PRODUCER: "write"}
    for name, (role, reason) in REJECTED.items():
        yield _code(name), roles[role], reason


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _code(text: str) -> str:
    return f"`{text}`"


def _list(names: Iterable[str]) -> str:
    return ", ".join(_code(name) for name in sorted(names))
