"""
`pykafka progress reset` deletes what queries have recorded, and nothing of other programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.memory_store import MemoryStore, Server

from pyspark_pykafka.cli import main, progress
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.progress.record import Owner, ProgressRecord

if TYPE_CHECKING:
    from pyspark_pykafka.progress.store import Records

OWN = ProgressRecord(5, Owner("q", "1 on x", 1))
FOREIGN = ProgressRecord(7)
T0, T1 = (TopicPartition("t", number) for number in range(2))


@pytest.mark.parametrize(
    ("records", "arguments", "code", "left"),
    [
        ({T0: OWN}, ["--execute"], 0, {}),
        ({T0: OWN}, [], 0, {T0: OWN}),
        ({T0: OWN, T1: FOREIGN}, ["--execute"], 1, {T0: OWN, T1: FOREIGN}),
        ({T0: FOREIGN}, [], 1, {T0: FOREIGN}),
        ({T0: OWN, T1: FOREIGN}, ["--execute", "--force"], 0, {}),
    ],
)
def test_reset_refuses_the_offsets_of_other_programs(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    records: Records,
    arguments: list[str],
    code: int,
    left: Records,
) -> None:
    """
    Offsets without the mark of a query are deleted with --force only; the error names them.
    """
    server = Server(dict(records))
    monkeypatch.setattr(progress, "make_progress_store", lambda _: MemoryStore(server))
    command = ["progress", "reset", "--bootstrap-server", "127.0.0.1:1", "--group", "g"]

    assert main([*command, *arguments]) == code

    assert server.records == left
    error = capsys.readouterr().err
    assert ("not recorded by a query" in error and "--force" in error) == bool(code)
