"""
Converts the offsets in a stopped query's checkpoint to the format of Spark's JVM connector.

The files have the format of Spark's OffsetSeqLog: a version, the batch's metadata, and one line
for each source with the JSON of its offsets, or a hyphen.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_pykafka.errors import OffsetsError
from pyspark_pykafka.offsets import RESERVED_KEYS, RESERVED_PREFIX

if TYPE_CHECKING:
    from pathlib import Path

_HEADER_LINES = 2


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """
    The folder of a query's ``checkpointLocation``, on a mounted file system.
    """

    folder: Path

    def batches(self) -> list[int]:
        """
        Return the ids of the micro-batches whose offsets the checkpoint holds, in order.

        Raises :class:`OffsetsError` if the folder is not a checkpoint.
        """
        logged = _numbers(self.folder / "offsets")
        if not logged:
            msg = (
                f"{self.folder} holds no offsets of a streaming query; it must be the folder that "
                "the query was given as checkpointLocation"
            )
            raise OffsetsError("NO_CHECKPOINT", msg)
        return logged

    def to_jvm_format(self, *, dry_run: bool = False) -> list[int]:
        """
        Remove everything that the JVM connector cannot read; return the ids of the changed batches.

        With ``dry_run`` no file is changed. The query must be stopped. Raises
        :class:`OffsetsError` as :meth:`batches` does, and if the first batch has not finished: its
        start is in the data that would be removed.
        """
        batches = self.batches()
        if batches[-1] not in _numbers(self.folder / "commits") and batches[-1] == 0:
            msg = (
                f"the first batch of the query in {self.folder} has not finished, and its start "
                "is in the data that would be removed; let it finish with pykafka first"
            )
            raise OffsetsError("FIRST_BATCH_NOT_FINISHED", msg)
        changed = []
        for batch in batches:
            path = self.folder / "offsets" / str(batch)
            before = path.read_text()
            after = _to_jvm_format(before)
            if after != before:
                changed.append(batch)
                if not dry_run:
                    _replace(path, after)
        return changed


def _numbers(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def _to_jvm_format(text: str) -> str:
    lines = text.split("\n")
    return "\n".join([*lines[:_HEADER_LINES], *map(_convert_line, lines[_HEADER_LINES:])])


def _convert_line(line: str) -> str:
    try:
        document = json.loads(line)
    except ValueError:
        return line
    # Another source of the same query may store anything.
    if not isinstance(document, dict) or RESERVED_KEYS.isdisjoint(document):
        return line
    without_ours = {
        key: value for key, value in document.items() if not key.startswith(RESERVED_PREFIX)
    }
    return json.dumps(without_ours, separators=(",", ":"))


def _replace(path: Path, text: str) -> None:
    """
    Replace the file atomically, and delete Hadoop's checksum of the old one.
    """
    temporary = path.with_name(f".{path.name}.pykafka")
    temporary.write_text(text)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    temporary.replace(path)
