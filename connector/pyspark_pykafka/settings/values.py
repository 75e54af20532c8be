"""
The user's ``kafka.*`` settings as a value whose ``repr`` shows no secrets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

from pyspark_pykafka.settings.properties import ALIASES, PROPERTIES
from pyspark_pykafka.settings.rules import CONNECTOR_SETTINGS, IGNORED, LEVELS

if TYPE_CHECKING:
    from collections.abc import Mapping

MASK = "********"

_JAVA_PRINTABLE = frozenset(
    {
        "max.request.size",
        "buffer.memory",
        "receive.buffer.bytes",
        "send.buffer.bytes",
        "fetch.max.wait.ms",
        "ssl.keystore.type",
        "ssl.truststore.type",
        "ssl.truststore.location",
    }
)

#: Settings whose values may be printed; all others are masked.
PRINTABLE: frozenset[str] = (
    frozenset(name for name, prop in PROPERTIES.items() if prop.printable)
    | frozenset(alias for alias, name in ALIASES.items() if PROPERTIES[name].printable)
    | frozenset(CONNECTOR_SETTINGS)
    | frozenset(LEVELS)
    | _JAVA_PRINTABLE
) - IGNORED


@dataclass(frozen=True, slots=True, repr=False)
class KafkaSettings:
    """
    Sorted pairs of (name without the ``kafka.`` prefix, value as the user gave it).

    The ``repr`` shows the values of :data:`PRINTABLE` names and masks all others.
    """

    pairs: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> KafkaSettings:
        """
        Return the settings of a mapping; names are not case-sensitive.
        """
        return cls(tuple(sorted((name.lower(), value) for name, value in settings.items())))

    @overload
    def get(self, name: str) -> str | None: ...

    @overload
    def get(self, name: str, default: str) -> str: ...

    def get(self, name: str, default: str | None = None) -> str | None:
        """
        Return the user's value for a name, or ``default``.
        """
        return dict(self.pairs).get(name, default)

    def without(self, name: str) -> KafkaSettings:
        """
        Return the settings without one of them.
        """
        return KafkaSettings(tuple(pair for pair in self.pairs if pair[0] != name))

    def __repr__(self) -> str:
        pairs = ", ".join(f"{name}={redacted_value(name, value)}" for name, value in self.pairs)
        return f"KafkaSettings({pairs})"


def redacted_value(name: str, value: str) -> str:
    """
    Return a value for messages, masked if it may be secret; ``name`` has no ``kafka.`` prefix.
    """
    return repr(value) if name in PRINTABLE else MASK


def debug_contexts(text: str) -> frozenset[str]:
    """
    Return the names in ``kafka.debug``, a list such as ``"broker, protocol"``.
    """
    return frozenset(filter(None, (context.strip().lower() for context in text.split(","))))
