"""
Formats a node's storage without Kafka's own tool, which needs a JVM and more than a second.

The tool writes two files. `meta.properties` has the ids of the cluster, the node and the folder.
`bootstrap.checkpoint` has Kafka's feature levels: the same for every cluster of a version, unless
settings change them. This file is kept in the cache, beside the jars that wrote it.
"""

from __future__ import annotations

import contextlib
import uuid
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING

from .jars import kafka_folder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

CHECKPOINT = "bootstrap.checkpoint"
META_PROPERTIES = "meta.properties"

# The tool reads settings whose names start with these prefixes, in one Kafka version or another.
_READ_BY_THE_TOOL = (
    "broker.id",
    "controller.",
    "feature",
    "inter.broker.protocol.version",
    "log.dir",
    "metadata.",
    "node.id",
    "process.roles",
    "unstable.",
)


def may_change_storage_format(settings: Iterable[str]) -> bool:
    """
    Return whether one of these settings may change the contents of the files.
    """
    return any(name.startswith(_READ_BY_THE_TOOL) for name in settings)


def cached_bootstrap_checkpoint(version: str) -> bytes | None:
    """
    Return the `bootstrap.checkpoint` that an earlier run of the tool wrote, or None.
    """
    try:
        return (kafka_folder(version) / CHECKPOINT).read_bytes()
    except OSError:
        return None


def cache_bootstrap_checkpoint(version: str, formatted: Path) -> None:
    """
    Keep a formatted folder's `bootstrap.checkpoint`, unless the tool also wrote unknown files.
    """
    if {path.name for path in formatted.iterdir()} != {CHECKPOINT, META_PROPERTIES}:
        return
    target = kafka_folder(version) / CHECKPOINT
    unfinished = target.with_name(f".{CHECKPOINT}.{uuid.uuid4().hex}")
    # If the cache cannot be written, the tool runs for every cluster.
    with contextlib.suppress(OSError):
        unfinished.write_bytes((formatted / CHECKPOINT).read_bytes())
        unfinished.rename(target)


def write_format(folder: Path, node_id: int, cluster_id: str, checkpoint: bytes) -> None:
    """
    Create the folder of a node, with the files that the tool would write.
    """
    folder.mkdir()
    (folder / META_PROPERTIES).write_text(
        f"version=1\nnode.id={node_id}\ncluster.id={cluster_id}\ndirectory.id={random_id()}\n"
    )
    (folder / CHECKPOINT).write_bytes(checkpoint)


def random_id() -> str:
    """
    Return a Kafka UUID: 16 bytes in 22 characters, not starting with a dash.
    """
    while (text := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        continue
    return text
