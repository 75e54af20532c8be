"""
Batches whose failing records cannot be isolated, since rows lack their position.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import MagicMock

import pytest
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka.errors import MissingTopicError
from pyspark_pykafka.failures import foreach_batch
from pyspark_pykafka.failures.dead_letters import DeadLetterTopic
from pyspark_pykafka.failures.foreach_batch import isolate_poison

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from pyspark_pykafka.failures.bisection import FailedRecord

WHOLE = {"topic": "t", "partition": 0, "first": 0, "last": 3, "number": 4, "unidentified": 0}


@dataclass
class Frame:
    """
    A frame with the given offsets of each partition; a filtered frame is a part of it.
    """

    partitions: list[dict[str, Any]]
    columns: Sequence[str] = ("value", "topic", "partition", "offset")
    is_part: bool = False
    is_cached: bool = False

    def persist(self, _: Any) -> Frame:
        self.is_cached = True
        return self

    def unpersist(self) -> None:
        self.is_cached = False

    def groupBy(self, *_: str) -> Frame:  # noqa: N802 (Spark's name)
        return self

    def agg(self, *_: Any) -> Frame:
        return self

    def collect(self) -> list[dict[str, Any]]:
        return self.partitions

    def filter(self, _: Any) -> Frame:
        return Frame(self.partitions, is_part=True)

    def limit(self, _: int) -> Frame:
        return Frame([], is_part=True)


@dataclass
class Sink:
    """
    A sink that rejects whole batches, and accepts their parts.
    """

    runs: int = 0
    set_aside: list[FailedRecord] = field(default_factory=list)

    def __call__(self, frame: DataFrame, _: int) -> None:
        self.runs += 1
        if not cast("Frame", frame).is_part:
            msg = "the sink cannot take null"
            raise ValueError(msg)

    def run(self, frame: Frame) -> None:
        handler = isolate_poison(self, lambda failed, _: self.set_aside.extend(failed))
        handler(cast("DataFrame", frame), 7)


@pytest.fixture(autouse=True)
def _without_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Replace Spark's functions, which need a session.
    """
    monkeypatch.setattr(foreach_batch, "sf", MagicMock())


@pytest.mark.parametrize(
    "nulls",
    [
        {"unidentified": 2},
        {"first": None, "last": None, "number": 0, "unidentified": 4},
        {"topic": None, "unidentified": 4},
        {"topic": None, "partition": None, "first": None, "last": None, "unidentified": 4},
    ],
    ids=["some offsets", "all offsets", "topic", "position"],
)
def test_rows_without_a_position(nulls: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """
    The batch fails with its own error, nothing is set aside or run again, and the log says why.
    """
    frame, sink = Frame([WHOLE, {**WHOLE, **nulls}]), Sink()

    with pytest.raises(ValueError, match="the sink cannot take null"):
        sink.run(frame)

    assert (sink.runs, sink.set_aside, frame.is_cached) == (1, [], False)
    assert (
        f"{nulls['unidentified']} rows of micro-batch 7 have no topic, partition or" in caplog.text
    )


def test_rows_with_a_position() -> None:
    """
    If all rows have a position, the batch is run in parts.
    """
    frame, sink = Frame([WHOLE]), Sink()

    sink.run(frame)

    assert sink.runs > 1
    assert not frame.is_cached


def test_a_missing_dead_letter_topic_is_noticed_before_the_search() -> None:
    """
    A batch fails at once if its dead-letter topic is missing; no part of it is run.
    """
    frame, sink = Frame([WHOLE]), Sink()
    with StubCluster(Behaviour(topics={"t": 1})) as cluster:
        options = {"kafka.bootstrap.servers": cluster.bootstrap, "kafka.max.block.ms": "1500"}
        handler = isolate_poison(sink, DeadLetterTopic("t.dead", options))
        with pytest.raises(MissingTopicError, match=r"t\.dead"):
            handler(cast("DataFrame", frame), 7)

    assert (sink.runs, frame.is_cached) == (1, False)
