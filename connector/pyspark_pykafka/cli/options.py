"""
`pykafka options`: lists or searches the connector's options.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.cli.arguments import add_json
from pyspark_pykafka.cli.command import Command
from pyspark_pykafka.cli.exit_codes import ExitCode
from pyspark_pykafka.cli.output import print_json
from pyspark_pykafka.options import OPTIONS, Scope
from pyspark_pykafka.options.option import Option, scope_names

if TYPE_CHECKING:
    import argparse

_INDENT = " " * 4
_WIDTH = 96


def _options(arguments: argparse.Namespace) -> int:
    words = [word.lower() for word in arguments.word]
    matching = [option for option in OPTIONS if _matches(option, words)]
    if arguments.json:
        print_json([_as_json(option) for option in matching])
    else:
        print("\n\n".join(map(_as_text, matching)) or f"No option mentions: {' '.join(words)}")
    return ExitCode.DONE if matching else ExitCode.NOT_FOUND


def _matches(option: Option[Any], words: list[str]) -> bool:
    searched = f"{option.name} {option.parser.expected} {option.description}".lower()
    return all(word in searched for word in words)


def _scope(option: Option[Any]) -> str:
    return "all queries" if option.scope == Scope.ALL else scope_names(option.scope)


def _as_text(option: Option[Any]) -> str:
    defaults = [
        *([] if option.default is None else [f"default: {option.default}"]),
        *([] if option.stream_default is None else [f"streaming: {option.stream_default}"]),
    ]
    facts = "; ".join([_scope(option), *defaults])
    lines = (f"Value: {option.parser.expected}", option.description.replace("`", ""))
    paragraphs = [
        textwrap.fill(line, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)
        for line in lines
    ]
    return "\n".join([f"{option.name}  ({facts})", *paragraphs])


def _as_json(option: Option[Any]) -> dict[str, Any]:
    return {
        "name": option.name,
        "value": option.parser.expected,
        "default": option.default,
        "streamDefault": option.stream_default,
        "in": _scope(option),
        "meaning": option.description,
    }


def _add_options_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "word", nargs="*", metavar="WORD", help="show options that mention all words"
    )
    add_json(parser)


OPTIONS_COMMAND = Command(
    "options",
    "Show the options of reads and writes: all, or only those that mention all WORDs.",
    _add_options_arguments,
    _options,
)
