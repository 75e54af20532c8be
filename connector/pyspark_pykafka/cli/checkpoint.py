"""
`pykafka plain-checkpoint`: converts a checkpoint for Spark's JVM connector.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_pykafka.cli.arguments import add_json
from pyspark_pykafka.cli.command import Command
from pyspark_pykafka.cli.output import print_json
from pyspark_pykafka.source.checkpoint import Checkpoint

if TYPE_CHECKING:
    import argparse


def _add_checkpoint_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="the query's checkpointLocation")
    parser.add_argument(
        "--dry-run", action="store_true", help="show the batches to convert without changing them"
    )
    add_json(parser)


def _checkpoint(arguments: argparse.Namespace) -> int:
    batch_ids = Checkpoint(arguments.folder).to_jvm_format(dry_run=arguments.dry_run)
    if arguments.json:
        print_json({"batches": list(batch_ids), "executed": not arguments.dry_run})
        return 0
    verb = "would be" if arguments.dry_run else "were"
    batches = f"batches {', '.join(map(str, batch_ids))}" if batch_ids else "no batch"
    print(f"The offsets of {batches} {verb} converted; the query can continue with format 'kafka'.")
    return 0


PLAIN_CHECKPOINT = Command(
    "plain-checkpoint",
    "Convert the checkpoint of a stopped query so that Spark's JVM connector can continue from it.",
    _add_checkpoint_arguments,
    _checkpoint,
)
