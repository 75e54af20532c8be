"""Arguments that several subcommands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_pykafka.errors import OptionsError

if TYPE_CHECKING:
    import argparse


def add_brokers(parser: argparse.ArgumentParser) -> None:
    """Add the brokers' addresses and the client's settings, named as in Kafka's own tools."""
    parser.add_argument(
        "--bootstrap-server", required=True, metavar="HOSTS", help="the brokers, such as host:9092"
    )
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
