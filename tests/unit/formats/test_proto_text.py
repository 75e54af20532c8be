"""
The messages that the text of a ``.proto`` file defines are those that ``protoc`` lists.
"""

from __future__ import annotations

import base64
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from pyspark_pykafka.formats.proto_text import at_path, message_names
from pyspark_pykafka.formats.protobuf_descriptors import described_files
from pyspark_pykafka.formats.protobuf_schemas import registered_message_names
from pyspark_pykafka.formats.protoc import compile_proto

if TYPE_CHECKING:
    from pyspark_pykafka.formats.proto_text import MessageNames

Names = list[tuple[str, bool, "Names"]]
MAX_LEVELS = 3
# An aggregate whose text resembles statements of a file.
AGGREGATE = """{ message: "}" package: "x" list: [1, 2] sub { message: 'a { b' } sub: < > }"""
HEAD = {
    "proto2": 'syntax = "proto2";',
    "proto3": 'syntax = "proto3";',
    "2024": 'edition = "2024";',
}
OPTIONS = """package a.b;
import "google/protobuf/descriptor.proto";
message Opt {{
  {label}string message = 1; {label}string package = 2;
  repeated int32 list = 3; repeated Opt sub = 4;
}}
extend google.protobuf.MessageOptions {{ {label}Opt opt = 50000; }}
extend google.protobuf.FieldOptions {{ {label}Opt field_opt = 50000; }}
"""


def listed(messages: list[MessageNames]) -> Names:
    """
    Return (name, is a map's entry, nested messages); the text has no name for a map's entry.
    """
    return [
        ("" if message.is_map_entry else message.name, message.is_map_entry, listed(message.nested))
        for message in messages
    ]


@dataclass
class AnyFile:
    """
    Writes the text of a file with any statements; names and numbers are used once.
    """

    syntax: str
    random: random.Random
    last: int = 200
    lines: list[str] = field(default_factory=list)

    def text(self) -> str:
        """
        Return the text of a file.
        """
        label = "" if self.syntax == "2024" else "optional "
        self.lines = [HEAD[self.syntax], OPTIONS.format(label=label)]
        if self.syntax == "proto2":
            self.lines.append("message Base { extensions 100 to max; }")
        for _ in range(12):
            self._message(1)
            self._extension()
        self.lines.append("service S { rpc R(Opt) returns (Opt) { option deprecated = true; } }")
        return "\n".join(self.lines)

    def _number(self) -> int:
        self.last += 1
        return self.last

    def _message(self, level: int) -> None:
        visibility = self.random.choice(["", "export ", "local "]) if self.syntax == "2024" else ""
        self.lines.append(f"{visibility}message Msg{self._number()} {{ // message X {{")
        if self.random.random() < 0.3:
            self.lines.append(f"option (opt) = {AGGREGATE};")
        for _ in range(self.random.randint(0, 5)):
            self._member(level)
        self.lines.append("}")

    def _member(self, level: int) -> None:
        members = [self._map, self._field, self._enum, self._oneof]
        if self.syntax == "proto2":
            members += [self._group, self._group, self._extension, self._reserved_for_extensions]
        if level < MAX_LEVELS and self.random.random() < 0.4:
            self._message(level + 1)
        else:
            self.random.choice(members)()

    def _options(self) -> str:
        return self.random.choice(
            ["", "[deprecated = true]", f"[deprecated = false, (field_opt) = {AGGREGATE}]"]
        )

    def _map(self) -> None:
        number = self._number()
        self.lines.append(f"map < int32, .a.b.Opt > map{number} = {number} {self._options()};")

    def _field(self) -> None:
        number = self._number()
        self.lines.append(f"repeated a.b.Opt field{number} = {number} {self._options()};;")

    def _enum(self) -> None:
        number = self._number()
        self.lines.append(f"enum Enum{number} {{ MESSAGE{number} = 0 {self._deprecated()}; }}")

    def _deprecated(self) -> str:
        return self.random.choice(["", "[deprecated = true]"])

    def _oneof(self) -> None:
        number = self._number()
        self.lines.append(f"oneof one{number} {{ int32 in{number} = {number} {self._options()};")
        if self.syntax == "proto2":
            self._group(label="")
        self.lines.append("}")

    def _group(self, label: str = "optional ") -> None:
        number = self._number()
        self.lines.append(f"{label}group Grp{number} = {number} {self._options()} {{")
        if self.random.random() < 0.5:
            self._map()
            self.lines.append(f"message Inner{self._number()} {{ }}")
        self.lines.append("}")

    def _extension(self) -> None:
        if self.syntax == "proto2":
            self.lines.append("extend a.b.Base {")
            self._group(label=self.random.choice(["optional ", "repeated "]))
            self.lines.append("}")

    def _reserved_for_extensions(self) -> None:
        number = self._number()
        name = f'full_name: ".a.b.x{number}", type: "int32"'
        self.lines.append(
            f"extensions {number} [declaration = {{ number: {number}, {name} }}, "
            "verification = DECLARATION];"
        )


@pytest.mark.parametrize("syntax", HEAD)
def test_equals_protoc(syntax: str) -> None:
    """
    The messages in any text are those of protoc's descriptors, in the same order: groups with
    options, groups in extensions, and messages with a visibility included.
    """
    text = AnyFile(syntax, random.Random(1)).text()
    *_, described = described_files(compile_proto(text, {}))
    expected = registered_message_names(base64.b64encode(described.data).decode())

    assert listed(message_names(text)) == listed(expected)


@pytest.mark.parametrize(
    ("text", "path", "name"),
    [
        (
            "message A { optional group H = 4 [deprecated = true] { } message B { } } message C {}",
            (0, 1),
            "A.B",
        ),
        (
            "message A { message N { } extend A { optional group Q = 10 { } } message O { } }",
            (0, 2),
            "A.O",
        ),
        ("export message A { } local message B { message C { } }", (1, 0), "B.C"),
        ('option (x) = { package: "y" }; message A { }', (0,), "A"),
    ],
)
def test_messages_by_index(text: str, path: tuple[int, ...], name: str) -> None:
    """
    Indexes count groups in messages and extensions; options have no effect on them.
    """
    assert at_path(message_names(text), path) == {name}
