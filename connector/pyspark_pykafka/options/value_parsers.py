"""
Parsers for the values of single options; each describes the text it accepts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from pyspark_pykafka.options.schema_text import read_schema
from pyspark_pykafka.options.values import RackProvider, RackVariable

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
Word = TypeVar("Word", bound=str)

_MAX_INT = 2**31 - 1
_MAX_LONG = 2**63 - 1
_WHOLE = re.compile(r"[+-]?[0-9]+")
_DURATION = re.compile(r"(?P<count>[0-9]+)\s*(?P<unit>[a-z]*)")
_UNIT_MS = {
    "": 1,
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_MICROSECONDS_PER_MS = 1_000
_SIZE = re.compile(r"(?P<count>[0-9]+)\s*(?P<unit>[kmg]?)b?")
_UNIT_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

_HOST = re.compile(r"[^\s/:,]+(:[0-9]+)?|\[[0-9a-fA-F:]+\](:[0-9]+)?")
_NODE = re.compile(r"[A-Za-z0-9._-]+")
_PATH = re.compile(rf"(/{_NODE.pattern})+")

# The variable's value is sent to the brokers, so an option must not be able to name a secret.
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*_)?(RACK|ZONE|AZ)(_ID)?", re.IGNORECASE)
# The names that the specification of entry points recommends.
_ENTRY_POINT = re.compile(r"[A-Za-z0-9._-]+")

# The names that Kafka allows for topics.
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
# Shorter than a topic's name, since the prefix and a suffix are the name of the ledger topic.
_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,200}")


class InvalidOptionError(ValueError):
    """
    A value that the option does not accept; the message follows "name is 'text'; ".
    """


@dataclass(frozen=True, slots=True)
class Parser(Generic[T]):
    """
    Parses an option; errors and the documentation show ``expected``.
    """

    read: Callable[[str], T]
    expected: str

    def __call__(self, text: str) -> T:
        """
        Return the value, or raise :class:`InvalidOptionError`.
        """
        try:
            return self.read(text)
        except InvalidOptionError:
            raise
        except ValueError as cause:
            msg = f"it must be: {self.expected}"
            raise InvalidOptionError(msg) from cause


def one_of(*choices: Word) -> Parser[Word]:
    """
    Parse one of several keywords, ignoring case.
    """
    expected = f"one of: {', '.join(choices)}"
    by_word = {choice.lower(): choice for choice in choices}

    def read(text: str) -> Word:
        word = text.strip().lower()
        if word not in by_word:
            raise ValueError(text)
        return by_word[word]

    return Parser(read, expected)


def whole_number(min_value: int, max_value: int = _MAX_INT) -> Parser[int]:
    """
    Parse a whole number from ``min_value`` to ``max_value``, by default the largest Java int.
    """

    def read(text: str) -> int:
        # int() accepts 1_000 and digits of other scripts; the JVM connector does not.
        if not _WHOLE.fullmatch(text.strip()):
            raise ValueError(text)
        number = int(text)
        if not min_value <= number <= max_value:
            raise ValueError(text)
        return number

    return Parser(read, f"a whole number, at least {min_value}")


def long_number(min_value: int) -> Parser[int]:
    """
    Parse a whole number up to the largest Java long.
    """
    return whole_number(min_value, _MAX_LONG)


def byte_size(min_value: int, max_value: int) -> Parser[int]:
    """
    Parse a number of bytes within bounds, with the units of Spark's own settings.
    """

    def read(text: str) -> int:
        match = _SIZE.fullmatch(text.strip().lower())
        if match is None:
            raise ValueError(text)
        size = int(match["count"]) * _UNIT_BYTES[match["unit"]]
        if not min_value <= size <= max_value:
            raise ValueError(text)
        return size

    bounds = f"{min_value >> 20}m to {max_value >> 30}g"
    return Parser(read, f"a number of bytes, optionally with a unit (k, m, g), from {bounds}")


def _read_boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError(text)
    return word == "true"


def _read_text(text: str) -> str:
    if not text.strip():
        raise ValueError(text)
    return text.strip()


def _read_duration(text: str) -> int:
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(text)
    count, unit = int(match["count"]), match["unit"]
    if unit == "us":
        return count // _MICROSECONDS_PER_MS
    if unit not in _UNIT_MS:
        raise ValueError(text)
    return count * _UNIT_MS[unit]


def _read_topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not topics:
        raise ValueError(text)
    try:
        return tuple(topic_name(topic) for topic in topics)
    except InvalidOptionError as cause:
        msg = f"{cause}; to read topics by a pattern, use subscribePattern"
        raise InvalidOptionError(msg) from cause


def _read_pattern(text: str) -> str:
    pattern = text.strip()
    if not pattern:
        raise ValueError(text)
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as cause:
        msg = f"it must be: a Python regular expression ({cause})"
        raise InvalidOptionError(msg) from cause
    return pattern


def _read_hosts(text: str) -> str:
    hosts = [host.strip() for host in text.split(",")]
    if not all(_HOST.fullmatch(host) for host in hosts):
        raise ValueError(text)
    return ",".join(hosts)


def _read_path(text: str) -> str:
    path = text.strip()
    if not _PATH.fullmatch(path):
        raise ValueError(text)
    return path


def _read_node(text: str) -> str:
    name = text.strip()
    if not _NODE.fullmatch(name) or name in (".", ".."):
        raise ValueError(text)
    return name


def _read_prefix(text: str) -> str:
    prefix = text.strip()
    if not _PREFIX.fullmatch(prefix):
        raise ValueError(text)
    return prefix


def _read_variable(text: str) -> RackVariable:
    name = text.strip()
    if not _VARIABLE.fullmatch(name):
        raise ValueError(text)
    return RackVariable(name)


def _read_entry_point(text: str) -> RackProvider:
    name = text.strip()
    if not _ENTRY_POINT.fullmatch(name):
        raise ValueError(text)
    return RackProvider(name)


def _read_credentials(text: str) -> tuple[str, str]:
    user, colon, password = text.partition(":")
    if not (user.strip() and colon and password):
        raise ValueError
    return user.strip(), password


def _read_schema(text: str) -> str:
    try:
        return read_schema(text)
    except (KeyError, TypeError, RecursionError) as cause:
        raise ValueError(text) from cause


def topic_name(name: str) -> str:
    """
    Return ``name``; raise :class:`InvalidOptionError` if it is not a legal topic name.
    """
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        msg = (
            f"'{name}' is not a legal topic name, which has at most 249 letters, digits, "
            "'.', '_' and '-'"
        )
        raise InvalidOptionError(msg)
    return name


SCHEMA = Parser(
    _read_schema,
    "a type as DDL or as JSON text, such as id BIGINT, customer STRUCT<name: STRING>",
)
SCHEMA_TEXT = Parser(_read_text, "a type as DDL or as JSON text, or a schema of Avro or Protobuf")
BOOLEAN = Parser(_read_boolean, "one of: true, false")
TEXT = Parser(_read_text, "a non-empty string")
DURATION = Parser(
    _read_duration, "a duration with a unit (us, ms, s, m, min, h, d), such as 15m or 500ms"
)
TOPICS = Parser(_read_topics, "one or more topics, such as orders,payments")
TOPIC = Parser(lambda text: topic_name(_read_text(text)), "a topic name")
HOSTS = Parser(_read_hosts, "server addresses, such as host:2181,host2:2181")
NODE_PATH = Parser(_read_path, "a node path that starts with a slash, such as /pykafka")
PREFIX = Parser(_read_prefix, "at most 200 letters, digits, '.', '_' and '-'")
NODE_NAME = Parser(_read_node, "a name of letters, digits, '.', '_' and '-'")
VARIABLE = Parser(
    _read_variable,
    "the name of an environment variable that ends in the word RACK, ZONE or AZ, or in one of them "
    "and _ID, such as NODE_ZONE",
)
ENTRY_POINT = Parser(
    _read_entry_point, "the name of an entry point: letters, digits, '.', '_' and '-'"
)
CREDENTIALS = Parser(_read_credentials, "a user and a password, separated by a colon")
PATTERN = Parser(_read_pattern, "a Python regular expression, such as ^orders-")
