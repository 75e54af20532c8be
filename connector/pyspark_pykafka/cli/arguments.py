"""
Arguments that several subcommands share.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_pykafka.cli.client_config import client_settings, require_brokers
from pyspark_pykafka.options.json_offsets import parse_position

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_pykafka.options import Position

MIN_SECONDS, MAX_SECONDS = 1, 86_400
_REGISTRY = "schema.registry."
_TIMEOUTS = ("kafka.default.api.timeout.ms", "kafka.max.block.ms", "kafka.delivery.timeout.ms")
#: The timeout of a single request is not longer than `--timeout`, but at least two seconds: a fetch
#: without records takes half a second, and librdkafka adds a second.
_REQUEST_TIMEOUT = "kafka.request.timeout.ms"
_MIN_REQUEST_MS, _MAX_REQUEST_MS = 2_000, 30_000
#: How long a command waits for records if --timeout is not given; a task's default is longer.
_RECORDS_MS = 60_000


def add_brokers(parser: argparse.ArgumentParser) -> None:
    """
    Add the brokers' addresses and the client's settings, named as in Kafka's own tools.
    """
    add_bootstrap(parser)
    add_client_settings(parser)


def add_bootstrap(parser: argparse._ActionsContainer) -> None:
    """
    Add the brokers' addresses to a parser, or to a group of arguments.
    """
    parser.add_argument(
        "--bootstrap-server", metavar="HOSTS", help="the brokers, such as host:9092"
    )


def add_client_settings(parser: argparse.ArgumentParser) -> None:
    """
    Add the arguments that select client settings, and the time limit for the brokers.
    """
    parser.add_argument(
        "--cluster", metavar="NAME", help="a cluster of the configuration file; default: default"
    )
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="a properties file with client settings, as for Kafka's own tools",
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        metavar="SECONDS",
        help="how long to wait for the brokers; default: 10 for the first response, then 60",
    )


def broker_options(arguments: argparse.Namespace) -> dict[str, str]:
    """
    Return the brokers, the login and the time limit as options of a reader.
    """
    settings = client_settings(arguments)
    require_brokers(settings)
    options = {
        f"kafka.{name}": setting.value
        for name, setting in settings.items()
        if not name.startswith(_REGISTRY)
    }
    return with_timeout(options, arguments)


def read_options(arguments: argparse.Namespace) -> dict[str, str]:
    """
    Return the options of :func:`broker_options` and the time limit of a reader of records.
    """
    milliseconds = _RECORDS_MS if arguments.timeout is None else round(arguments.timeout * 1000)
    return {**broker_options(arguments), "kafkaConsumer.pollTimeoutMs": str(milliseconds)}


def registry_options(arguments: argparse.Namespace) -> dict[str, str]:
    """
    Return the options of the schema registry; they come from the same sources as the brokers'.
    """
    settings = client_settings(arguments)
    return {name: setting.value for name, setting in settings.items() if name.startswith(_REGISTRY)}


def with_timeout(options: Mapping[str, str], arguments: argparse.Namespace) -> dict[str, str]:
    """
    Return options with the time limit of `--timeout`; without it they are returned as they are.

    A shorter timeout of requests, given as a setting, remains.
    """
    if arguments.timeout is None:
        return {**options}
    milliseconds = round(arguments.timeout * 1000)
    user_timeout = options.get(_REQUEST_TIMEOUT, "")
    max_ms = int(user_timeout) if user_timeout.isdecimal() else _MAX_REQUEST_MS
    request_ms = min(max(milliseconds, _MIN_REQUEST_MS), max_ms)
    timeouts = {**dict.fromkeys(_TIMEOUTS, milliseconds), _REQUEST_TIMEOUT: request_ms}
    return {**options, **{name: str(limit) for name, limit in timeouts.items()}}


def seconds(text: str) -> float:
    """
    Parse a number of seconds.
    """
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not MIN_SECONDS <= number <= MAX_SECONDS:
        msg = (
            f"{text!r} is not valid; it must be a number of seconds, {MIN_SECONDS} to {MAX_SECONDS}"
        )
        raise argparse.ArgumentTypeError(msg)
    return number


def whole_number(min_value: int, max_value: int | None = None) -> Callable[[str], int]:
    """
    Return a parser of whole numbers in a range, both ends included.
    """
    limits = f", at least {min_value}" if max_value is None else f" from {min_value} to {max_value}"

    def parse(text: str) -> int:
        if text.isdecimal():
            number = int(text)
            if number >= min_value and (max_value is None or number <= max_value):
                return number
        msg = f"{text!r} is not valid; it must be a whole number{limits}"
        raise argparse.ArgumentTypeError(msg)

    return parse


def position(text: str) -> int | Position:
    """
    Parse a position in a log: an offset, earliest, latest, or a form such as '-10 minutes'.
    """
    try:
        return parse_position(text)
    except ValueError as cause:
        msg = f"{text!r} is not valid; {cause}"
        raise argparse.ArgumentTypeError(msg) from cause


def name_and_value(text: str) -> tuple[str, str]:
    """
    Parse NAME=VALUE.
    """
    name, equals, value = text.partition("=")
    if not (name and equals):
        msg = f"{text!r} is not valid; it must be NAME=VALUE"
        raise argparse.ArgumentTypeError(msg)
    return name, value


def add_settings(
    parser: argparse.ArgumentParser,
    flag: str,
    description: str,
    parse: Callable[[str], tuple[str, object]] = name_and_value,
) -> None:
    """
    Add an argument NAME=VALUE that may be repeated.
    """
    parser.add_argument(
        flag, type=parse, action="append", default=[], metavar="NAME=VALUE", help=description
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """
    Add the flag for machine-readable output.
    """
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_execute(parser: argparse.ArgumentParser) -> None:
    """
    Add the flag --execute; without it commands change nothing.
    """
    parser.add_argument(
        "--execute",
        action="store_true",
        help="make the changes instead of only showing them",
    )
