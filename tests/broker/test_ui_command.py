"""
`pykafka ui` for queries with either progress store, and its page over HTTP.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from tests.support.streams import SECONDS, values

from pyspark_pykafka.cli import main
from pyspark_pykafka.engines.selection import group_backend
from pyspark_pykafka.engines.wire.consumer.groups import WireGroups
from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.failures.bisection import FailedRecord
from pyspark_pykafka.failures.dead_letters import DeadLetterTopic
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.progress.factory import make_progress_store
from pyspark_pykafka.progress.record import FailedAttempts, Owner, ProgressRecord
from pyspark_pykafka.testing import Record
from pyspark_pykafka.testing.waiting import wait_until
from pyspark_pykafka.ui import cluster_source
from pyspark_pykafka.ui.cluster_source import ClusterSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.testing import KafkaCluster, ZooKeeper
    from pyspark_pykafka.testing.plugin import TopicFactory

DAY = 86_400


@pytest.fixture(params=["consumerGroup", "zookeeper"])
def store(
    request: pytest.FixtureRequest, kafka_cluster: KafkaCluster, topic: TopicFactory
) -> tuple[str, list[str]]:
    """
    Return a topic whose progress is recorded, and the arguments that select its store.
    """
    name = topic(2)
    kafka_cluster.produce(name, [Record(b"v", partition=i % 2) for i in range(20)])
    arguments = ["--bootstrap-server", kafka_cluster.bootstrap]
    if request.param == "consumerGroup":
        record_progress(kafka_cluster, name)
        return name, [*arguments, "--group", name]
    zookeeper: ZooKeeper = request.getfixturevalue("zookeeper")
    record_progress(kafka_cluster, name, zookeeperHosts=zookeeper.hosts, zookeeperId=name)
    return name, [*arguments, "--zookeeper", zookeeper.hosts, "--id", name]


def record_progress(kafka: KafkaCluster, name: str, **zookeeper: str) -> None:
    """
    Record progress as a query does: partition 0 is read up to offset 2 and fails there, partition 1
    is finished.
    """
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "subscribe": name,
        "progressStore": "zookeeper" if zookeeper else "consumerGroup",
        "kafka.group.id": name,
        "kafka.session.timeout.ms": "6000",
        **zookeeper,
    }
    opened = make_progress_store(parse_stream_source(options))
    owner = opened.claim(Owner("q", "1 on x", 0), [name]).owner
    failing = FailedAttempts(5, 3, "boom")
    opened.write(
        {
            TopicPartition(name, 0): ProgressRecord(2, owner, 4, failing=failing),
            TopicPartition(name, 1): ProgressRecord(10, owner, 4),
        }
    )
    opened.close()


@pytest.fixture
def page_document(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """
    Return a function that returns the document printed by `pykafka ui --json`.
    """

    def run(*arguments: str) -> dict[str, Any]:
        assert main(["ui", *arguments, "--json"]) == 0
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    return run


def test_query_with_a_store(
    store: tuple[str, list[str]], page_document: Callable[..., dict[str, Any]]
) -> None:
    """
    A query is shown with its lag, the batch that it fails at, and the error.
    """
    name, arguments = store
    document = page_document(*arguments)

    (query,) = document["queries"]
    assert (query["name"], query["state"], query["lag"]) == (name, "failing", 8)
    assert (query["batch"], query["replays"]) == (4, 3)
    assert [(p["position"], p["end"], p["lag"]) for p in query["partitions"]] == [
        (2, 10, 8),
        (10, 10, 0),
    ]
    assert query["partitions"][1]["lag_seconds"] == 0
    (error,) = document["errors"]
    assert (error["query"], error["count"]) == (name, 3)
    assert error["text"] == "micro-batch 5 failed: boom"


def test_lag_in_seconds_is_the_age_of_the_first_unread_record(
    kafka_cluster: KafkaCluster, topic: TopicFactory
) -> None:
    """
    The age of a backlog from before the page started is that of its first unread record, and grows
    with the clock.
    """
    name, clock = topic(2), [float(int(time.time()))]
    ages = [0, 0, DAY]
    kafka_cluster.produce(
        name,
        [Record(b"v", partition=0, timestamp=round((clock[0] - age) * 1000)) for age in ages],
    )
    record_progress(kafka_cluster, name)
    brokers = {"kafka.bootstrap.servers": kafka_cluster.bootstrap}
    groups = [{"progressStore": "consumerGroup", "kafka.group.id": name}]
    source = ClusterSource(brokers, groups, now=lambda: clock[0])

    assert source().queries[0].lag_seconds == DAY
    clock[0] += 10
    assert source().queries[0].lag_seconds == DAY + 10


def test_groups_of_queries_are_found(
    kafka_cluster: KafkaCluster,
    topic: TopicFactory,
    page_document: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    Without --group each group that a query has written is shown, and no group of another client;
    a cluster with too many groups is not searched.
    """
    name, other = topic(2), topic(1)
    kafka_cluster.produce(other, values(0, 3))
    record_progress(kafka_cluster, name)
    consume_as(kafka_cluster, other)
    kafka = parse_stream_source(options_of(kafka_cluster)).kafka
    assert name in group_backend(kafka).list_groups()
    # The cluster also has the groups of all other tests.
    monkeypatch.setattr(WireGroups, "list_groups", lambda _: [name, other])

    document = page_document("--bootstrap-server", kafka_cluster.bootstrap)
    assert [query["name"] for query in document["queries"]] == [name]
    monkeypatch.setattr(cluster_source, "MAX_GROUPS", 1)
    with pytest.raises(PykafkaError, match="has 2 consumer groups, .* name yours with --group"):
        ClusterSource(options_of(kafka_cluster))()


def options_of(kafka: KafkaCluster) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka.bootstrap, "subscribePattern": "."}


def consume_as(kafka: KafkaCluster, topic: str) -> None:
    """
    Commit offsets as a plain consumer in a group of the topic's name.
    """
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as KafkaPartition

    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": topic})
    consumer.commit(offsets=[KafkaPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()


def test_dead_letters(
    kafka_cluster: KafkaCluster,
    topic: TopicFactory,
    page_document: Callable[..., dict[str, Any]],
) -> None:
    """
    A dead-letter topic is shown with its number of records and the error of the last one.
    """
    name, letters = topic(2), topic(1)
    kafka_cluster.produce(name, [Record(b"v", partition=0)] * 3)
    record_progress(kafka_cluster, name)
    brokers = {"kafka.bootstrap.servers": kafka_cluster.bootstrap}
    tp = TopicPartition(name, 0)
    failed = [FailedRecord(tp, offset, ValueError(f"no {offset}"), 2) for offset in range(3)]
    DeadLetterTopic(letters, brokers)(failed, 7)

    arguments = ["--bootstrap-server", kafka_cluster.bootstrap, "--group", name]
    (letter,) = page_document(*arguments, "--dead-letters", letters)["dead_letters"]
    assert (letter["topic"], letter["partition"], letter["records"]) == (letters, "0", 3)
    assert letter["text"] == f"the last: {name}-0 at 2, builtins.ValueError: no 2"


def test_group_without_offsets_is_an_error(
    kafka_cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    A group without recorded offsets is an error, instead of a page without a lag.
    """
    arguments = ["--bootstrap-server", kafka_cluster.bootstrap, "--group", "misspelt"]

    assert main(["ui", *arguments]) == 3
    assert "no offsets are recorded for misspelt; correct --group" in capsys.readouterr().err


def test_arguments_that_belong_together(capsys: pytest.CaptureFixture[str]) -> None:
    """
    ZooKeeper's servers without an id are an error.
    """
    assert main(["ui", "--bootstrap-server", "127.0.0.1:1", "--zookeeper", "127.0.0.1:1"]) == 2
    assert "--zookeeper and --id belong together" in capsys.readouterr().err


def test_page_is_served_until_interrupted(kafka_cluster: KafkaCluster, topic: TopicFactory) -> None:
    """
    The command prints the page's address, follows the cluster, and ends at Ctrl-C.
    """
    name = topic(2)
    record_progress(kafka_cluster, name)
    arguments = ["--bootstrap-server", kafka_cluster.bootstrap, "--group", name]
    command = [sys.executable, "-m", "pyspark_pykafka.cli", "ui", *arguments]
    with subprocess.Popen(
        [*command, "--port", "0", "--seconds", "1"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().removeprefix("The page is at ").strip()
            kafka_cluster.produce(name, [Record(b"v", partition=0)] * 12)
            wait_until(lambda: differing_lag(url, 10), SECONDS)
            with urlopen(url, timeout=SECONDS) as response:  # noqa: S310 (our own page)
                assert b"<h1>pykafka</h1>" in response.read()
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 130


def differing_lag(url: str, expected: int) -> str | None:
    with urlopen(f"{url}data.json", timeout=SECONDS) as response:  # noqa: S310 (likewise)
        queries = json.loads(response.read())["queries"]
    lags = [query["lag"] for query in queries]
    return None if lags == [expected] else f"the lags are {lags}, not {expected}"
