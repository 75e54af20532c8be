"""
`pykafka plain-checkpoint`: converts a checkpoint for Spark's JVM connector.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_pykafka.cli.arguments import add_execute, add_json
from pyspark_pykafka.cli.command import Command
from pyspark_pykafka.cli.output import print_json
from pyspark_pykafka.source.checkpoint import Checkpoint

if TYPE_CHECKING:
    import argparse


def _add_checkpoint_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="the query's checkpointLocation")
    add_execute(parser)
    add_json(parser)


def _checkpoint(arguments: argparse.Namespace) -> int:
    batch_ids = Checkpoint(arguments.folder).to_jvm_format(dry_run=not arguments.execute)
    if arguments.json:
        print_json({"batches": list(batch_ids), "executed": arguments.execute})
        return 0
    batches = f"batches {', '.join(map(str, batch_ids))}" if batch_ids else "no batch"
    if arguments.execute:
        print(f"The offsets of {batches} were converted.")
        print("The query can continue with format 'kafka'.")
    else:
        print(f"The offsets of {batches} would be converted.")
        print("Dry run: nothing was changed. Use --execute once the query is stopped.")
    return 0


PLAIN_CHECKPOINT = Command(
    "plain-checkpoint",
    "Convert the checkpoint of a stopped query so that Spark's JVM connector can continue from it.",
    _add_checkpoint_arguments,
    _checkpoint,
)
