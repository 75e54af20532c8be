"""
`pykafka config`: shows which brokers and settings a command uses, and where they come from.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyspark_pykafka.cli.arguments import add_brokers, add_json
from pyspark_pykafka.cli.client_config import client_settings, config_path
from pyspark_pykafka.cli.command import Command
from pyspark_pykafka.cli.output import print_json, print_table
from pyspark_pykafka.settings import MASK, PRINTABLE

if TYPE_CHECKING:
    import argparse


def _config(arguments: argparse.Namespace) -> int:
    settings = client_settings(arguments)
    rows = [
        (name, value if name in PRINTABLE else MASK, source)
        for name, (value, source) in sorted(settings.items())
    ]
    if arguments.json:
        print_json({name: {"value": value, "from": source} for name, value, source in rows})
        return 0
    print_table(("SETTING", "VALUE", "FROM"), rows)
    path = config_path(os.environ)
    print(f"Configuration file: {path}{'' if path.exists() else ' (does not exist)'}")
    return 0


def _add_config_arguments(parser: argparse.ArgumentParser) -> None:
    add_brokers(parser)
    add_json(parser)


CONFIG = Command(
    "config",
    "Show the brokers and client settings that commands use, and where they come from.",
    _add_config_arguments,
    _config,
)
