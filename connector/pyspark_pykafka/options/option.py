"""
What an option is, and the kinds of query that options are for.
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
    The kinds of query that an option is for.
    """

    NONE = 0
    BATCH_READ = enum.auto()
    STREAM_READ = enum.auto()
    BATCH_WRITE = enum.auto()
    STREAM_WRITE = enum.auto()
    READ = BATCH_READ | STREAM_READ
    WRITE = BATCH_WRITE | STREAM_WRITE
    ALL = READ | WRITE


#: How people call each kind of query.
SCOPE_NAMES: dict[Scope, str] = {
    Scope.BATCH_READ: "batch read",
    Scope.STREAM_READ: "streaming read",
    Scope.BATCH_WRITE: "batch write",
    Scope.STREAM_WRITE: "streaming write",
}


def scope_names(scope: Scope) -> str:
    """
    Return the kinds of query in a scope, for people.
    """
    return ", ".join(word for kind, word in SCOPE_NAMES.items() if kind & scope)


@dataclass(frozen=True, slots=True)
class Option(Generic[T]):
    """
    One row of the table.

    ``default`` is a text for the parser; ``stream_default`` stands for it in streaming reads.
    In ``no_effect`` queries the option is accepted, as the JVM connector does, and logged.
    What is ``secret`` no message repeats.
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
        The name as Spark hands it over.
        """
        return self.name.lower()

    def default_in(self, scope: Scope) -> str | None:
        """
        Return the text that stands for an option that was not given.
        """
        if self.stream_default is not None and scope & Scope.STREAM_READ:
            return self.stream_default
        return self.default
