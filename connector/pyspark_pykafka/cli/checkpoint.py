"""`pykafka plain-checkpoint`: the way back to Spark's JVM connector."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_pykafka.cli.command import Command
from pyspark_pykafka.source.checkpoint import Checkpoint

if TYPE_CHECKING:
    import argparse


def _add_checkpoint_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="the query's checkpointLocation")
    parser.add_argument(
        "--dry-run", action="store_true", help="say which batches would change, and change none"
    )


def _checkpoint(chosen: argparse.Namespace) -> int:
    changed = Checkpoint(chosen.folder).to_jvm_format(dry_run=chosen.dry_run)
    done = "would be made" if chosen.dry_run else "are"
    which = f"batches {', '.join(map(str, changed))}" if changed else "no batch"
    print(f"The offsets of {which} {done} plain; the query can go on with format 'kafka'.")
    return 0


PLAIN_CHECKPOINT = Command(
    "plain-checkpoint",
    "Make the checkpoint of a stopped query one that Spark's JVM connector can go on from.",
    _add_checkpoint_arguments,
    _checkpoint,
)
