"""
The offsets in a stopped query's checkpoint, and making them ones that the JVM connector reads.

The form of the files is Spark's (OffsetSeqLog): a version, the batch's metadata, and a line with
the JSON of each source's offsets, or a hyphen.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_pykafka.errors import OffsetsError
from pyspark_pykafka.offsets import INITIAL, LEADER_EPOCHS, QUERY, RESERVED_PREFIX, TOPIC_IDS

if TYPE_CHECKING:
    from pathlib import Path

_HEAD = 2
_OURS = (TOPIC_IDS, INITIAL, QUERY, LEADER_EPOCHS)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """
    The folder that a query was given as ``checkpointLocation``, on a file system that is mounted.
    """

    folder: Path

    def batches(self) -> list[int]:
        """
        Return the numbers of the batches whose offsets are kept.

        Raises :class:`OffsetsError` if the folder is no checkpoint.
        """
        found = _numbers(self.folder / "offsets")
        if not found:
            msg = (
                f"{self.folder} holds no offsets of a streaming query; it must be the folder that "
                "the query was given as checkpointLocation"
            )
            raise OffsetsError("NO_CHECKPOINT", msg)
        return found

    def to_jvm_format(self, *, dry_run: bool = False) -> list[int]:
        """
        Take out of all offsets what the JVM connector does not read; return the batches changed.

        The query must be stopped. Raises :class:`OffsetsError` if its first batch has not
        finished: only pykafka knows where that one starts.
        """
        batches = self.batches()
        if batches[-1] not in _numbers(self.folder / "commits") and batches[-1] == 0:
            msg = (
                f"the first batch of the query in {self.folder} has not finished, and where it "
                "starts is kept in what would be taken out; let it finish with pykafka first"
            )
            raise OffsetsError("FIRST_BATCH_NOT_FINISHED", msg)
        changed = []
        for batch in batches:
            path = self.folder / "offsets" / str(batch)
            before = path.read_text()
            after = _plain(before)
            if after != before:
                changed.append(batch)
                if not dry_run:
                    _replace(path, after)
        return changed


def _numbers(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def _plain(text: str) -> str:
    lines = text.split("\n")
    return "\n".join([*lines[:_HEAD], *map(_plain_line, lines[_HEAD:])])


def _plain_line(line: str) -> str:
    try:
        document = json.loads(line)
    except ValueError:
        return line
    # Another source of the same query may keep whatever it likes.
    if not isinstance(document, dict) or not any(key in document for key in _OURS):
        return line
    kept = {key: at for key, at in document.items() if not key.startswith(RESERVED_PREFIX)}
    return json.dumps(kept, separators=(",", ":"))


def _replace(path: Path, text: str) -> None:
    """
    Write as a whole or not at all; Hadoop's checksum beside it would not fit any more.
    """
    made = path.with_name(f".{path.name}.pykafka")
    made.write_text(text)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    made.replace(path)
