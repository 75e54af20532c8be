"""
The declaration of an option, and the kinds of query that it applies to.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from pyspark_pykafka.options.value_parsers import Parser

T = TypeVar("T")


class Scope(enum.Flag):
    """
    The kinds of query that an option applies to.
    """

    NONE = 0
    BATCH_READ = enum.auto()
    STREAM_READ = enum.auto()
    BATCH_WRITE = enum.auto()
    STREAM_WRITE = enum.auto()
    READ = BATCH_READ | STREAM_READ
    WRITE = BATCH_WRITE | STREAM_WRITE
    ALL = READ | WRITE


#: The kinds of query as they are named in messages and documentation.
SCOPE_NAMES: dict[Scope, str] = {
    Scope.BATCH_READ: "batch read",
    Scope.STREAM_READ: "streaming read",
    Scope.BATCH_WRITE: "batch write",
    Scope.STREAM_WRITE: "streaming write",
}


def scope_names(scope: Scope) -> str:
    """
    Return the kinds of query in a scope as text: ``"batch read, streaming read"``.
    """
    return ", ".join(word for kind, word in SCOPE_NAMES.items() if kind & scope)


@dataclass(frozen=True, slots=True)
class Option(Generic[T]):
    """
    One row of the option table.

    ``default`` is text for the parser; ``stream_default`` replaces it in streaming reads. In
    queries of the scope ``no_effect`` the option is accepted and logged, as in the JVM connector.
    The value of a ``secret`` option never appears in a message. ``description`` is Markdown.
    """

    name: str
    parser: Parser[T]
    description: str
    scope: Scope
    default: str | None = None
    stream_default: str | None = None
    no_effect: Scope = Scope.NONE
    secret: bool = False

    @property
    def key(self) -> str:
        """
        The name in lower case, as Spark passes it.
        """
        return self.name.lower()

    def default_in(self, scope: Scope) -> str | None:
        """
        Return the default for a kind of query, as text for the parser, or None.
        """
        if self.stream_default is not None and scope & Scope.STREAM_READ:
            return self.stream_default
        return self.default
