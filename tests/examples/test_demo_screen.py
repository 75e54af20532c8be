"""
The progress bars of the demo, with a counter and with a real stream.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from pyspark_pykafka.testing import Record
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from types import ModuleType

    from pyspark.sql import DataFrame, SparkSession

    from pyspark_pykafka.testing import KafkaCluster
    from pyspark_pykafka.testing.plugin import TopicFactory

SECONDS = 30.0


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """
    Import the module as the demo does, from its own folder.
    """
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    monkeypatch.delitem(sys.modules, "demo_screen", raising=False)
    import demo_screen

    return demo_screen


def test_a_bar_follows_the_work(screen: ModuleType) -> None:
    """
    The bar moves while records are written or read, and shows all of them at the end.
    """
    records, progress = 0, screen.bars()

    def shown(number: int) -> None:
        (bar,) = progress.tasks
        wait_until(lambda: None if bar.completed == number else f"at {bar.completed}", SECONDS)

    with screen.watched(progress, "read", 30, lambda: records):
        for records in (10, 20):
            shown(records)
        records = 30
    (bar,) = progress.tasks
    assert (bar.completed, bar.finished) == (30, True)


def test_the_bar_of_a_stream_moves_with_each_batch(
    screen: ModuleType,
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    topic: TopicFactory,
    checkpoint: str,
) -> None:
    """
    The bar shows the records of all finished micro-batches before the next one ends.
    """
    import demo

    total, per_batch = 30, 10
    name, progress, seen = topic(), screen.bars(), []
    kafka_cluster.produce(name, [Record(b"%d" % number) for number in range(total)])

    def hold(frame: DataFrame, number: int) -> None:
        frame.count()
        finished = number * per_batch

        def missing() -> str | None:
            bar = progress.tasks[0] if progress.tasks else None
            return None if bar and bar.completed == finished else f"no bar at {finished}"

        wait_until(missing, SECONDS)
        seen.append(finished)

    stream = (
        spark.readStream.format("pykafka")
        .option("kafka.bootstrap.servers", kafka_cluster.bootstrap)
        .option("subscribe", name)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", per_batch)
        .load()
    )
    writer = stream.writeStream.option("checkpointLocation", checkpoint)
    query = writer.foreachBatch(hold).start()
    try:
        with screen.watched(progress, "read", total, lambda: demo.rows_read(query)):
            demo.wait_for(query, total)
    finally:
        query.stop()
    assert seen == [0, 10, 20]
    (bar,) = progress.tasks
    assert (bar.completed, bar.finished) == (total, True)


def test_a_step_shows_what_is_downloaded(
    screen: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A step of the set-up shows its name, and how many MB it has downloaded since it began.
    """
    bars = []

    class Recorded(screen.Progress):  # type: ignore[misc, name-defined]
        def __enter__(self) -> Self:
            bars.append(self)
            super().__enter__()
            return self

    monkeypatch.setattr(screen, "Progress", Recorded)
    (tmp_path / "old.jar").write_bytes(bytes(3_000_000))

    with screen.step("Starting", downloads=tmp_path):
        (bar,) = bars[0].tasks
        assert bar.description == "Starting"
        (tmp_path / "new.jar").write_bytes(bytes(2_000_000))
        text = "Starting: 2 MB downloaded"
        wait_until(lambda: None if bar.description == text else bar.description, SECONDS)
    assert bar.finished
