"""
The command-line tool `pykafka`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import signal
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING, NoReturn

from pyspark_pykafka.cli.checkpoint import PLAIN_CHECKPOINT
from pyspark_pykafka.cli.completion import COMPLETION
from pyspark_pykafka.cli.config import CONFIG
from pyspark_pykafka.cli.deadletter import DEADLETTER
from pyspark_pykafka.cli.dev import DEV
from pyspark_pykafka.cli.doctor import DOCTOR
from pyspark_pykafka.cli.exit_codes import ExitCode, exit_code
from pyspark_pykafka.cli.lag import LAG
from pyspark_pykafka.cli.options import OPTIONS_COMMAND
from pyspark_pykafka.cli.output import discard_output, escaped
from pyspark_pykafka.cli.peek import PEEK
from pyspark_pykafka.cli.produce import PRODUCE
from pyspark_pykafka.cli.progress import PROGRESS
from pyspark_pykafka.cli.replay import REPLAY
from pyspark_pykafka.cli.schema import SCHEMA
from pyspark_pykafka.cli.topic import TOPIC
from pyspark_pykafka.cli.transactions import TRANSACTIONS
from pyspark_pykafka.cli.ui import UI
from pyspark_pykafka.cli.verify import VERIFY
from pyspark_pykafka.errors import OptionsError, PykafkaError
from pyspark_pykafka.signal_handlers import replaceable_handlers, restore_handlers
from pyspark_pykafka.testing import FetchError, JavaNotFoundError, ServerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark_pykafka.cli.command import Command

__all__ = ["COMMANDS", "main", "make_parser"]

_DISTRIBUTION = "pyspark-pykafka"

COMMANDS = (
    *(
        DEV,
        TOPIC,
        PRODUCE,
        PEEK,
        SCHEMA,
        PROGRESS,
        LAG,
        REPLAY,
        DEADLETTER,
        TRANSACTIONS,
        PLAIN_CHECKPOINT,
        VERIFY,
    ),
    *(DOCTOR, OPTIONS_COMMAND, CONFIG, COMPLETION, UI),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run `pykafka` and return its exit code.
    """
    parsed = make_parser().parse_args(arguments)
    command: Command = parsed.command
    # Hides kazoo's warning about each attempt to connect; the error at the end says enough.
    logging.getLogger("kazoo").addHandler(logging.NullHandler())
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A character that the terminal's encoding lacks is written as an escape sequence.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with _signals_as_interrupt():
            code = command.run(parsed)
            _flush_output()
            return code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        discard_output()
        return ExitCode.OUTPUT_CLOSED
    except OptionsError as error:
        # The mistakes may be in arguments, not in Spark's options.
        _report(command, "; ".join(error.mistakes))
        return exit_code(error)
    except (ServerError, FetchError, JavaNotFoundError, PykafkaError) as error:
        _report(command, str(error))
        return exit_code(error)
    except OSError as error:
        # A full disk, or a file that cannot be written.
        _report(command, str(error))
        discard_output()
        return ExitCode.FAILED


def _report(command: Command, text: str) -> None:
    print(f"pykafka {command.name}:", escaped(text, keep="\n"), file=sys.stderr)


def make_parser() -> argparse.ArgumentParser:
    """
    Return the parser of all commands.
    """
    parser = argparse.ArgumentParser(prog="pykafka", description="Tools for Kafka with Spark.")
    parser.add_argument("--version", action="version", version=f"pykafka {version(_DISTRIBUTION)}")
    subparsers = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in COMMANDS:
        subparser = subparsers.add_parser(
            command.name, help=command.description, description=command.description
        )
        command.add_arguments(subparser)
        subparser.set_defaults(command=command)
    return parser


def _flush_output() -> None:
    # Python sets sys.stdout to None if the shell has closed standard output.
    if sys.stdout is not None:
        sys.stdout.flush()


@contextlib.contextmanager
def _signals_as_interrupt() -> Iterator[None]:
    """
    Turn SIGTERM and SIGHUP into KeyboardInterrupt, so that commands clean up.

    A signal that is ignored, as SIGHUP is by nohup, remains ignored.
    """

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    previous = replaceable_handlers("SIGTERM", "SIGHUP")
    for number, handler in previous.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        restore_handlers(previous)
