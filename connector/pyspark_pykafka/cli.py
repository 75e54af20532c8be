"""The command `pykafka`: what people run at a prompt rather than in a Spark job."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from pyspark_pykafka.checkpoint import Checkpoint
from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.testing import (
    KAFKA_VERSION,
    FetchError,
    JavaNotFoundError,
    KafkaCluster,
    ServerError,
    ZooKeeper,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

INTERRUPTED = 130
CHECK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Command:
    """One subcommand: its name, one sentence, its arguments and what it does."""

    name: str
    sentence: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `pykafka` and return its exit code."""
    chosen = _parser().parse_args(arguments)
    command: Command = chosen.command
    try:
        with _sigterm_as_interrupt():
            return command.run(chosen)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (ServerError, FetchError, JavaNotFoundError, PykafkaError) as error:
        print(f"pykafka {command.name}: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pykafka", description="Tools for Kafka with Spark.")
    subparsers = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in COMMANDS:
        subparser = subparsers.add_parser(
            command.name, help=command.sentence, description=command.sentence
        )
        command.add_arguments(subparser)
        subparser.set_defaults(command=command)
    return parser


def _add_dev_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="default: 1")
    parser.add_argument(
        "--version", default=KAFKA_VERSION, help=f"Kafka's version, default: {KAFKA_VERSION}"
    )
    parser.add_argument(
        "--port", type=_port, help="the first broker's port, default: one that is free"
    )
    parser.add_argument("--zookeeper", action="store_true", help="run a ZooKeeper as well")


def _dev(chosen: argparse.Namespace) -> int:
    print(f"Starting Kafka {chosen.version}; its jars are fetched once.", flush=True)
    kafka = KafkaCluster(chosen.brokers, chosen.version, port=chosen.port)
    try:
        with contextlib.ExitStack() as servers:
            servers.enter_context(kafka)
            zookeeper = servers.enter_context(ZooKeeper()) if chosen.zookeeper else None
            print(_how_to_connect(kafka, zookeeper), flush=True)
            _until_interrupted(kafka)
    except KeyboardInterrupt:
        print("Stopped; topics and data are gone.", flush=True)
    return 0


def _until_interrupted(kafka: KafkaCluster) -> NoReturn:
    """Watch the brokers until Ctrl-C or SIGTERM; one that ends by itself is an error."""
    waiting = threading.Event()
    while True:
        waiting.wait(CHECK_SECONDS)
        kafka.check()


def _how_to_connect(kafka: KafkaCluster, zookeeper: ZooKeeper | None) -> str:
    lines = [
        "",
        f"Kafka is ready:      {kafka.bootstrap}",
        *([f"ZooKeeper is ready:  {zookeeper.hosts}"] if zookeeper else []),
        "",
        "In Spark (topics are not made by themselves; make one with Kafka's tools or a client):",
        "",
        '    spark.readStream.format("pykafka")',
        f'        .option("kafka.bootstrap.servers", "{kafka.bootstrap}")',
        '        .option("subscribe", "my-topic")',
        '        .option("startingOffsets", "earliest")',
        "        .load()",
        "",
        "Ctrl-C ends it and removes all its data.",
    ]
    return "\n".join(lines)


def _add_checkpoint_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="the query's checkpointLocation")
    parser.add_argument(
        "--dry-run", action="store_true", help="say which batches would change, and change none"
    )


def _checkpoint(chosen: argparse.Namespace) -> int:
    changed = Checkpoint(chosen.folder).make_plain(dry_run=chosen.dry_run)
    done = "would be made" if chosen.dry_run else "are"
    which = f"batches {', '.join(map(str, changed))}" if changed else "no batch"
    print(f"The offsets of {which} {done} plain; the query can go on with format 'kafka'.")
    return 0


def _port(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 65533:
        msg = f"{text!r} is no port; it must be a number from 1 to 65533"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


@contextlib.contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Let SIGTERM unwind the program as Ctrl-C does, so that what was started is ended."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


COMMANDS = (
    Command(
        "dev",
        "Run Kafka in the foreground, to try things on, until Ctrl-C.",
        _add_dev_arguments,
        _dev,
    ),
    Command(
        "plain-checkpoint",
        "Make the checkpoint of a stopped query one that Spark's JVM connector can go on from.",
        _add_checkpoint_arguments,
        _checkpoint,
    ),
)

if __name__ == "__main__":
    sys.exit(main())
