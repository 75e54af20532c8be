"""
Converting a checkpoint for the JVM connector: its offsets stay, our reserved keys are removed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pyspark_pykafka.cli import main
from pyspark_pykafka.errors import OffsetsError
from pyspark_pykafka.source.checkpoint import Checkpoint

if TYPE_CHECKING:
    from pathlib import Path

META = '{"batchWatermarkMs":0}'
OURS = {"t": {"0": 3}, "@topicIds": {"t": "abc"}}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """
    Return the checkpoint of a query with two sources and three batches, the last one unfinished.
    """
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    first = {**OURS, "@initial": OURS}
    for batch, line in enumerate([json.dumps(first), json.dumps(OURS), "-"]):
        lines = ["v1", META, line, '{"@other": 1}']
        (tmp_path / "offsets" / str(batch)).write_text("\n".join(lines))
        (tmp_path / "offsets" / f".{batch}.crc").write_bytes(b"crc")
    for batch in (0, 1):
        (tmp_path / "commits" / str(batch)).write_text("v1\n{}")
    return tmp_path


def test_our_keys_are_removed(checkpoint: Path) -> None:
    """
    Offsets stay; other sources' lines and files without our keys are unchanged.
    """
    assert Checkpoint(checkpoint).to_jvm_format() == [0, 1]

    texts = [(checkpoint / "offsets" / str(b)).read_text().split("\n") for b in range(3)]
    assert texts[0] == texts[1] == ["v1", META, '{"t":{"0":3}}', '{"@other": 1}']
    assert texts[2] == ["v1", META, "-", '{"@other": 1}']
    names = sorted(path.name for path in (checkpoint / "offsets").iterdir())
    assert names == [".2.crc", "0", "1", "2"]
    assert Checkpoint(checkpoint).to_jvm_format() == []


def test_dry_run_changes_nothing(checkpoint: Path) -> None:
    """
    A dry run returns the batches that would change; the command needs --execute to change them.
    """
    before = (checkpoint / "offsets" / "0").read_text()

    assert Checkpoint(checkpoint).to_jvm_format(dry_run=True) == [0, 1]
    assert main(["plain-checkpoint", str(checkpoint)]) == 0
    assert (checkpoint / "offsets" / "0").read_text() == before
    assert main(["plain-checkpoint", str(checkpoint), "--execute"]) == 0
    assert (checkpoint / "offsets" / "0").read_text() != before


def test_unfinished_first_batch_is_refused(checkpoint: Path) -> None:
    """
    A first batch must finish before the conversion, which removes its start.
    """
    for batch in (1, 2):
        (checkpoint / "offsets" / str(batch)).unlink()
    (checkpoint / "commits" / "0").unlink()

    with pytest.raises(OffsetsError, match="let it finish with pykafka first"):
        Checkpoint(checkpoint).to_jvm_format()


def test_folder_without_offsets_is_refused(tmp_path: Path) -> None:
    """
    The error names the folder, and says which folder is needed.
    """
    with pytest.raises(OffsetsError, match="must be the folder that the query was given"):
        Checkpoint(tmp_path).to_jvm_format()
