"""
Finds the messages that the text of a ``.proto`` file defines.

Only the package and the nesting of messages are parsed here. ``protoc`` parses the fields.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_pykafka.formats.protobuf_definitions import ProtobufSchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[\w.]+|\S""", re.DOTALL
)
_MAX_DEPTH = 100


@dataclass(slots=True)
class MessageNames:
    """
    A message's full name and its nested messages, in the order of the file.

    Map entries are messages too, but only some serializers count them in message indexes.
    """

    name: str
    is_map_entry: bool = False
    nested: list[MessageNames] = field(default_factory=list)


def message_names(text: str) -> list[MessageNames]:
    """
    Return the messages of a ``.proto`` text. Raises :class:`ProtobufSchemaError` if it has none.
    """
    reader = _Reader(iter(_tokens(text)))
    reader.read("", root := MessageNames(""), 0)
    if not root.nested:
        msg = "it defines no message"
        raise ProtobufSchemaError(msg)
    prefix = f"{reader.package}." if reader.package else ""
    _add_package(root.nested, prefix)
    return root.nested


def _add_package(messages: list[MessageNames], prefix: str) -> None:
    for message in messages:
        message.name = prefix + message.name
        _add_package(message.nested, prefix)


def at_path(messages: list[MessageNames], path: tuple[int, ...]) -> set[str]:
    """
    Return the possible names of the message at a path of indexes; map entries may have none.
    """
    names: set[str] = set()
    for counts_entries in (True, False):
        level, name = messages, ""
        for index in path:
            counted = [m for m in level if counts_entries or not m.is_map_entry]
            if index >= len(counted):
                break
            level, name = counted[index].nested, counted[index].name
        else:
            names.add(name)
    return names


def all_names(messages: list[MessageNames]) -> set[str]:
    """
    Return the names of the messages, and of all messages that are nested in them.
    """
    names = {message.name for message in messages}
    return names.union(*(all_names(message.nested) for message in messages))


def _tokens(text: str) -> Iterator[str]:
    for match in _TOKEN.finditer(text):
        if not match[0].startswith(("//", "/*")):
            yield match[0]


@dataclass(slots=True)
class _Reader:
    """
    Reads statements, which end with a semicolon or have a body in braces.
    """

    tokens: Iterator[str]
    package: str = ""

    def read(self, scope: str, message: MessageNames, depth: int) -> None:
        if depth > _MAX_DEPTH:
            msg = f"it is nested more than {_MAX_DEPTH} levels"
            raise ProtobufSchemaError(msg)
        statement: list[str] = []
        for part in self.tokens:
            if part == "}":
                return
            if part == "[":
                # The options of a field, a group or an extension range.
                self._skip("[", "]")
            elif part == ";":
                self._end(statement, scope, message)
                statement = []
            elif part == "{":
                self._body(statement, scope, message, depth)
                statement = []
            else:
                statement.append(part)

    def _end(self, statement: list[str], scope: str, message: MessageNames) -> None:
        if statement[:1] == ["package"] and not scope:
            self.package = "".join(statement[1:])
        elif statement[:2] == ["map", "<"]:
            message.nested.append(MessageNames(f"{scope}Entry", is_map_entry=True))

    def _body(self, statement: list[str], scope: str, message: MessageNames, depth: int) -> None:
        name = _defined_name(statement)
        if name is not None:
            inner = MessageNames(scope + name)
            message.nested.append(inner)
            self.read(f"{scope}{name}.", inner, depth + 1)
        elif statement[:1] in (["oneof"], ["extend"]):
            # A group in a oneof or an extension is a message of the enclosing scope.
            self.read(scope, message, depth + 1)
        else:
            # An enum, a service, or the value of an option.
            self._skip("{", "}")

    def _skip(self, opening: str, closing: str) -> None:
        """
        Skip the rest of a pair of brackets or braces.
        """
        level = 1
        for part in self.tokens:
            level += (part == opening) - (part == closing)
            if level == 0:
                return


def _defined_name(statement: list[str]) -> str | None:
    """
    Return the name of the message or group whose body follows, or None.
    """
    if statement[:1] in (["export"], ["local"]):
        # The visibility of a message, since edition 2024.
        statement = statement[1:]
    if statement[:1] == ["message"] and len(statement) == 2:
        return statement[1]
    is_group = "group" in statement[:2] and statement[0] != "option" and "=" in statement
    return statement[statement.index("group") + 1] if is_group else None
