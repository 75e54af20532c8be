"""Arguments that several subcommands take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_pykafka.errors import OptionsError

if TYPE_CHECKING:
    import argparse


def add_brokers(parser: argparse.ArgumentParser) -> None:
    """Add what says where the brokers are and how to speak to them, as in Kafka's own tools."""
    parser.add_argument(
        "--bootstrap-server", required=True, metavar="HOSTS", help="the brokers, as host:9092"
    )
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="the client's settings, a line for each, as Kafka's own tools take them",
    )


def broker_options(chosen: argparse.Namespace) -> dict[str, str]:
    """Return the options of a reader that those arguments mean."""
    given = _properties(chosen.command_config)
    options = {f"kafka.{name}": value for name, value in given.items()}
    return {**options, "kafka.bootstrap.servers": chosen.bootstrap_server}


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
    """Add the switch for output that programs read."""
    parser.add_argument("--json", action="store_true", help="for programs rather than people")


def add_execute(parser: argparse.ArgumentParser) -> None:
    """Add the switch without which nothing changes."""
    parser.add_argument(
        "--execute", action="store_true", help="do it; without this it only says what it would do"
    )
