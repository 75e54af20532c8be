"""
`pykafka lag` for topics that were deleted and recreated, and for partitions without a record.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest
from tests.support.stub_brokers import Behaviour, StubCluster, record_batch

from pyspark_pykafka.cli import lag, main
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.progress.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_pykafka.progress.store import Records

#: The number of records in each partition.
COUNTS = {("a", 0): 40, ("b", 0): 5, ("b", 1): 3}
A0, B0 = TopicPartition("a", 0), TopicPartition("b", 0)


class ShortenedLog(Behaviour):
    """
    Two topics; the first record of ``b`` has aged out.
    """

    def offsets(self, node: int, topic: str, partition: int, timestamp: int) -> tuple[int, int]:
        error, offset = super().offsets(node, topic, partition, timestamp)
        return error, max(offset, 1) if topic == "b" else offset


BEHAVIOUR = ShortenedLog(
    topics={"a": 1, "b": 2},
    logs={tp: [record_batch(0, [b"v"] * count)] for tp, count in COUNTS.items()},
)


def topic_id(topic: str) -> str:
    """
    Return a topic's id in Kafka's text form.
    """
    return base64.urlsafe_b64encode(BEHAVIOUR.topic_id(topic).bytes).decode().rstrip("=")


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """
    The address of the cluster.
    """
    with StubCluster(BEHAVIOUR) as cluster:
        yield cluster.bootstrap


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        pytest.param(Record(1000, topic_id="another"), 4, id="recreated, long record"),
        pytest.param(Record(2, topic_id="another"), 4, id="recreated, short record"),
        pytest.param(Record(2, topic_id=topic_id("b")), 3, id="the same topic"),
        pytest.param(Record(1000), 0, id="unknown id"),
        pytest.param(None, None, id="no record"),
    ],
)
def test_lag_of_a_topic(
    bootstrap: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    record: Record | None,
    expected: int | None,
) -> None:
    """
    The lag of a recreated topic counts from its start. No partition's lag is below 0, which would
    hide that of others, and a partition without a record is not in the total.
    """
    records: Records = {A0: Record(30, topic_id=topic_id("a"))}
    if record is not None:
        records[B0] = record
    monkeypatch.setattr(lag, "existing_records", lambda _: records)

    assert main(["lag", "--json", "--bootstrap-server", bootstrap, "--group", "g"]) == 0

    report = json.loads(capsys.readouterr().out)
    lags = {(each["topic"], each["partition"]): each["lag"] for each in report["partitions"]}
    assert lags[A0] == 10
    assert lags.get(B0) == expected
    assert lags.get(TopicPartition("b", 1)) is None
    assert report["lag"] == 10 + (expected or 0)
    offset = next((each["offset"] for each in report["partitions"] if each["topic"] == "b"), None)
    assert offset == (record and record.offset)
