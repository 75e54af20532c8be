"""Arguments that several subcommands share."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark_pykafka.errors import OptionsError

MIN_SECONDS, MAX_SECONDS = 1, 86_400


def add_brokers(parser: argparse.ArgumentParser) -> None:
    """Add the brokers' addresses and the client's settings, named as in Kafka's own tools."""
    add_bootstrap(parser, required=True)
    add_command_config(parser)


def add_bootstrap(parser: argparse._ActionsContainer, *, required: bool) -> None:
    """Add the brokers' addresses to a parser, or to a group of arguments."""
    parser.add_argument(
        "--bootstrap-server",
        required=required,
        metavar="HOSTS",
        help="the brokers, such as host:9092",
    )


def add_command_config(parser: argparse.ArgumentParser) -> None:
    """Add the file with the client's settings."""
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="a properties file with client settings, as for Kafka's own tools",
    )


def broker_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return these arguments as options of a reader."""
    properties = _properties(arguments.command_config)
    options = {f"kafka.{name}": value for name, value in properties.items()}
    return {**options, "kafka.bootstrap.servers": arguments.bootstrap_server}


def _properties(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        lines = path.read_text().splitlines()
    except OSError as cause:
        raise OptionsError((f"--command-config cannot be read: {cause}",)) from cause
    pairs = [
        line.strip().partition("=") for line in lines if line.strip()[:1] not in ("", "#", "!")
    ]
    return {name.strip(): value.strip() for name, _, value in pairs}


def add_timeout(parser: argparse.ArgumentParser) -> None:
    """Add how long brokers are waited for."""
    parser.add_argument(
        "--timeout",
        type=_seconds,
        metavar="SECONDS",
        help="how long to wait for the brokers; default: 10 for their first answer, then 60",
    )


def timeout_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the time limit as options; those of the user's file take precedence."""
    if arguments.timeout is None:
        return {}
    milliseconds = str(round(arguments.timeout * 1000))
    names = ("default.api.timeout.ms", "max.block.ms", "delivery.timeout.ms")
    return {f"kafka.{name}": milliseconds for name in names}


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:
        msg = (
            f"{text!r} is not valid; it must be a number of seconds, {MIN_SECONDS} to {MAX_SECONDS}"
        )
        raise argparse.ArgumentTypeError(msg)
    return seconds


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the flag for machine-readable output."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def add_execute(parser: argparse.ArgumentParser) -> None:
    """Add the flag without which nothing is changed."""
    parser.add_argument(
        "--execute",
        action="store_true",
        help="make the changes instead of only showing them",
    )
