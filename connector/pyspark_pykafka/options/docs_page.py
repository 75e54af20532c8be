"""
The documentation page of all options, written from the tables that parsing uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_pykafka.options.option import Option, Scope, scope_names
from pyspark_pykafka.options.table import OPTIONS
from pyspark_pykafka.settings import ALIASES, KEPT, LEVELS, REFUSED, RENAMED, UNUSED, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_HEAD = """\
<!-- Written by `python -m pyspark_pykafka.options > docs/options.md`; do not edit. -->

# Options

Names are read in any case, and so are words as values. An option that does not exist, a value that
cannot be read, or an option in a query that it is not for is an error; one lists all mistakes.
"""

_READING = """\
A read needs `kafka.bootstrap.servers` and exactly one of `assign`, `subscribe` and
`subscribePattern`.
"""

_KAFKA = """\
## kafka.*

What begins with `kafka.` goes to the Kafka client without that prefix, in librdkafka's names or the
Java client's, as far as the tables below go. `kafka.bootstrap.servers` is mandatory. The values of
passwords, keys and whatever else is not known to be harmless are never printed.

Unless set otherwise: `isolation.level=read_uncommitted`, `check.crcs=true`,
`enable.idempotence=true`, `partitioner=murmur2_random`, `delivery.timeout.ms=120000`,
`message.max.bytes=1048576`, `request.timeout.ms=30000`: the Java client's values, not librdkafka's.
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
            "itself if PKCS#12; `ssl.certificate.location` and `ssl.key.location` if PEM; "
            "JKS is refused"
        ),
    ),
    ("ssl.truststore.location", "`ssl.ca.location` if PEM; JKS and PKCS#12 are refused"),
    (
        "partitioner.class",
        "`partitioner=murmur2_random` for DefaultPartitioner; others are refused",
    ),
    ("partitioner.ignore.keys", "`partitioner=random` if true"),
)


def page() -> str:
    """
    Return the whole page as Markdown.
    """
    reading = [option for option in OPTIONS if option.scope & Scope.READ]
    writing = [option for option in OPTIONS if (option.scope | option.no_effect) & Scope.WRITE]
    parts = [
        _HEAD,
        f"## Reading\n\n{_READING}",
        _table(("Option", "Value", "Default", "In", "Meaning"), map(_row, reading)),
        "## Writing\n",
        _table(("Option", "Value", "Default", "In", "Meaning"), map(_row, writing)),
        _KAFKA,
        "### Translated\n",
        _table(("Java client", "librdkafka"), _translated()),
        "### Kept by the connector\n",
        _table(("Setting", "Default"), ((_code(name), str(ms)) for name, ms in KEPT.items())),
        "### Refused\n",
        _table(("Setting", "For", "Why"), _refused()),
        f"### Without effect\n\nAccepted, and named once in the log: {_list(UNUSED)}.\n",
    ]
    return "\n".join(parts)


def _row(option: Option[Any]) -> tuple[str, ...]:
    return (
        _code(option.name),
        option.parser.expected,
        _default(option),
        "everywhere" if option.scope == Scope.ALL else scope_names(option.scope),
        option.description + _remarks(option),
    )


def _default(option: Option[Any]) -> str:
    if option.default is None:
        return ""
    if option.stream_default is None:
        return _code(option.default)
    return f"{_code(option.default)}; in a stream {_code(option.stream_default)}"


def _remarks(option: Option[Any]) -> str:
    return f" No effect in: {scope_names(option.no_effect)}." if option.no_effect else ""


def _translated() -> Iterator[tuple[str, str]]:
    for name, (target, _) in RENAMED.items():
        if name != target:
            yield _code(name), _code(target)
    for name in LEVELS:
        yield _code(name), _code("compression.level")
    for name, text in _ALSO_TRANSLATED:
        yield _code(name), text
    for alias, name in ALIASES.items():
        yield f"{_code(alias)} (librdkafka's)", _code(name)


def _refused() -> Iterator[tuple[str, str, str]]:
    roles = {Role.ANY: "read, write", Role.CONSUMER: "read", Role.PRODUCER: "write"}
    for name, (role, reason) in REFUSED.items():
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
