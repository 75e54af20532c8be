"""The command-line tool `pykafka`."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from pyspark_pykafka.cli.checkpoint import PLAIN_CHECKPOINT
from pyspark_pykafka.cli.deadletter import DEADLETTER
from pyspark_pykafka.cli.dev import DEV
from pyspark_pykafka.cli.peek import PEEK
from pyspark_pykafka.cli.produce import PRODUCE
from pyspark_pykafka.cli.progress import LAG, PROGRESS
from pyspark_pykafka.cli.topic import TOPIC
from pyspark_pykafka.cli.transactions import TRANSACTIONS
from pyspark_pykafka.cli.verify import VERIFY
from pyspark_pykafka.errors import OptionsError, PykafkaError
from pyspark_pykafka.testing import FetchError, JavaNotFoundError, ServerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark_pykafka.cli.command import Command

__all__ = ["COMMANDS", "main"]

INTERRUPTED = 130

COMMANDS = (
    *(DEV, TOPIC, PRODUCE, PEEK, PROGRESS, LAG, DEADLETTER, TRANSACTIONS, PLAIN_CHECKPOINT, VERIFY),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `pykafka` and return its exit code."""
    parsed = _parser().parse_args(arguments)
    command: Command = parsed.command
    try:
        with _sigterm_as_interrupt():
            return command.run(parsed)
    except KeyboardInterrupt:
        return INTERRUPTED
    except OptionsError as error:
        # The mistakes may be in arguments, not in Spark's options.
        print(f"pykafka {command.name}: {'; '.join(error.mistakes)}", file=sys.stderr)
        return 1
    except (ServerError, FetchError, JavaNotFoundError, PykafkaError) as error:
        print(f"pykafka {command.name}: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pykafka", description="Tools for Kafka with Spark.")
    subparsers = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in COMMANDS:
        subparser = subparsers.add_parser(
            command.name, help=command.description, description=command.description
        )
        command.add_arguments(subparser)
        subparser.set_defaults(command=command)
    return parser


@contextlib.contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Turn SIGTERM into KeyboardInterrupt, so that started servers are stopped."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
