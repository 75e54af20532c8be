"""
Making a checkpoint plain: what the JVM connector reads stays, what is ours goes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pyspark_pykafka.errors import OffsetsError
from pyspark_pykafka.source.checkpoint import Checkpoint

if TYPE_CHECKING:
    from pathlib import Path

META = '{"batchWatermarkMs":0}'
OURS = {"t": {"0": 3}, "@topicIds": {"t": "abc"}}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """
    Return the folder of a query with another source beside ours, and three batches of which the
    last has not finished.
    """
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    first = {**OURS, "@initial": OURS}
    for batch, ours in enumerate([json.dumps(first), json.dumps(OURS), "-"]):
        lines = ["v1", META, ours, '{"@other": 1}']
        (tmp_path / "offsets" / str(batch)).write_text("\n".join(lines))
        (tmp_path / "offsets" / f".{batch}.crc").write_bytes(b"crc")
    for batch in (0, 1):
        (tmp_path / "commits" / str(batch)).write_text("v1\n{}")
    return tmp_path


def test_what_is_ours_goes(checkpoint: Path) -> None:
    """
    Offsets stay; other sources' lines and files that need no change are left as they are.
    """
    assert Checkpoint(checkpoint).to_jvm_format() == [0, 1]

    texts = [(checkpoint / "offsets" / str(b)).read_text().split("\n") for b in range(3)]
    assert texts[0] == texts[1] == ["v1", META, '{"t":{"0":3}}', '{"@other": 1}']
    assert texts[2] == ["v1", META, "-", '{"@other": 1}']
    left = sorted(path.name for path in (checkpoint / "offsets").iterdir())
    assert left == [".2.crc", "0", "1", "2"]
    assert Checkpoint(checkpoint).to_jvm_format() == []


def test_dry_run_changes_nothing(checkpoint: Path) -> None:
    """
    Who asks first is told what would change.
    """
    before = (checkpoint / "offsets" / "0").read_text()

    assert Checkpoint(checkpoint).to_jvm_format(dry_run=True) == [0, 1]
    assert (checkpoint / "offsets" / "0").read_text() == before


def test_unfinished_first_batch_is_refused(checkpoint: Path) -> None:
    """
    The start of a first batch is known to us only, so it must finish before.
    """
    for batch in (1, 2):
        (checkpoint / "offsets" / str(batch)).unlink()
    (checkpoint / "commits" / "0").unlink()

    with pytest.raises(OffsetsError, match="let it finish with pykafka first"):
        Checkpoint(checkpoint).to_jvm_format()


def test_other_folders_are_refused(tmp_path: Path) -> None:
    """
    A folder that is no checkpoint is named, with what it must be.
    """
    with pytest.raises(OffsetsError, match="must be the folder that the query was given"):
        Checkpoint(tmp_path).to_jvm_format()
