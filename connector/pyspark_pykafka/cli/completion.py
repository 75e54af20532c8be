"""
`pykafka completion`: prints a script for the shell's completion of commands and arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.cli.command import Command
from pyspark_pykafka.errors import OptionsError

if TYPE_CHECKING:
    import argparse

SHELLS = ("bash", "zsh", "tcsh")


def _completion(arguments: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError as cause:
        msg = "completion needs the package shtab; use: pip install 'pyspark-pykafka[cli]'"
        raise OptionsError((msg,)) from cause
    # Imported here, since the full parser includes this command.
    from pyspark_pykafka.cli import make_parser

    print(shtab.complete(make_parser(), arguments.shell))
    return 0


def _add_completion_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS)


COMPLETION = Command(
    "completion",
    'Print a completion script for a shell, such as: eval "$(pykafka completion bash)"',
    _add_completion_arguments,
    _completion,
)
