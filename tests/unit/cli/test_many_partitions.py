"""
Commands on a topic with many partitions send one request to each leader, not to each partition.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka.cli import main
from pyspark_pykafka.metrics.unread_records import FirstRecord, UnreadRecords
from pyspark_pykafka.offsets import OffsetRange, TopicPartition
from pyspark_pykafka.options import parse_stream_source

if TYPE_CHECKING:
    from collections.abc import Iterator

FETCH = 1
BROKERS, PARTITIONS, END = 100, 2000, 5


@pytest.fixture(scope="module")
def stubs() -> Iterator[StubCluster]:
    """
    A cluster whose topic t has five records in each partition.
    """
    behaviour = Behaviour(brokers=BROKERS, topics={"t": PARTITIONS}, high_watermark=END)
    with StubCluster(behaviour) as cluster:
        yield cluster


def fetch_requests(stubs: StubCluster) -> int:
    return int(stubs.stats()["requests"].get(FETCH, 0))


@pytest.mark.parametrize(
    ("arguments", "offsets"), [(["--max", "3"], [0, 1, 2]), (["--last", "1"], [4] * PARTITIONS)]
)
def test_peek_of_many_partitions(
    stubs: StubCluster,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    offsets: list[int],
) -> None:
    """
    The first records of all partitions, or the last of each, take one request per leader.
    """
    before = fetch_requests(stubs)
    command = ["peek", "--topic", "t", "--json", "--bootstrap-server", stubs.bootstrap]

    assert main([*command, *arguments]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["offset"] for line in lines] == offsets
    assert fetch_requests(stubs) - before == BROKERS


def test_schema_of_many_partitions(stubs: StubCluster, capsys: pytest.CaptureFixture[str]) -> None:
    """
    The sample of `pykafka schema infer` takes one request per leader, even if no record is JSON.
    """
    before = fetch_requests(stubs)
    command = ["schema", "infer", "t", "--bootstrap-server", stubs.bootstrap]

    assert main([*command, "--max", str(PARTITIONS)]) == 1

    assert f"{PARTITIONS} not JSON" in capsys.readouterr().err
    assert fetch_requests(stubs) - before == BROKERS


def test_ages_of_many_partitions(stubs: StubCluster) -> None:
    """
    The ages of the first unread records, for `pykafka lag` and metrics, take one request per
    leader.
    """
    before = fetch_requests(stubs)
    options = parse_stream_source({"kafka.bootstrap.servers": stubs.bootstrap, "subscribe": "t"})
    unread = [OffsetRange(TopicPartition("t", number), 2, END) for number in range(PARTITIONS)]

    first = UnreadRecords(options).first(unread)

    assert first == dict.fromkeys(unread, FirstRecord(2, 1_700_000_000.0))
    assert fetch_requests(stubs) - before == BROKERS
