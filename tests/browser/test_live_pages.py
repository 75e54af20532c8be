"""
The pages of a real query in a real browser: that of `pykafka ui`, which reads the cluster, and that
of a MetricsListener in the driver program.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.support.streams import SECONDS, Stream, texts, values

from pyspark_pykafka.cli import main
from pyspark_pykafka.failures.bisection import FailedRecord
from pyspark_pykafka.failures.dead_letters import DeadLetterTopic
from pyspark_pykafka.metrics.listener import MetricsListener
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from tests.browser.conftest import Browser

    from pyspark_pykafka.testing import KafkaCluster
    from pyspark_pykafka.testing.plugin import TopicFactory

pytestmark = pytest.mark.browser

#: The figures of the first query, by their titles.
FIGURES = """Object.fromEntries([...document.querySelectorAll('.query:first-child dt')].map(
  (term) => [term.textContent, term.nextElementSibling.textContent]))"""


def wait_for_query(browser: Browser, state: str, **figures: str) -> None:
    """
    Wait until the first query has a state and figures, such as ``micro_batch="0"``.
    """
    shown = {name.replace("_", "-").capitalize(): text for name, text in figures.items()}
    conditions = [f"document.querySelector('.query .state').textContent === {json.dumps(state)}"]
    conditions += [
        f"({FIGURES})[{json.dumps(title)}] === {json.dumps(text)}" for title, text in shown.items()
    ]
    browser.wait_for(" && ".join(conditions))


@contextmanager
def cluster_page(*arguments: str) -> Iterator[str]:
    """
    Run `pykafka ui` as users do, and yield the address that it prints.
    """
    command = [sys.executable, "-m", "pyspark_pykafka.cli", "ui", "--port", "0", "--seconds", "1"]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().removeprefix("The page is at ").strip()
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(SECONDS)


def test_page_of_a_cluster(
    browser: Browser,
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    topic: TopicFactory,
    checkpoint: str,
) -> None:
    """
    `pykafka ui` shows a query that records its progress in a consumer group, while it runs and
    after it has ended: its state, lag and partitions. It also shows dead letters with their error.
    """
    name, letters = topic(2), topic(1)
    brokers = {"kafka.bootstrap.servers": kafka_cluster.bootstrap}
    options = {"subscribe": name, "startingOffsets": "earliest", "progressStore": "consumerGroup"}
    query = Stream(spark, {**brokers, **options, "kafka.group.id": name}, checkpoint)
    kafka_cluster.produce(name, values(0, 20))
    failed = FailedRecord(TopicPartition(name, 0), 0, ValueError("no zeros"), 2)
    DeadLetterTopic(letters, brokers)([failed], 0)
    query.start()
    query.await_values(texts(0, 20))

    arguments = ("--bootstrap-server", kafka_cluster.bootstrap, "--group", name)
    # The query records its progress only after the batch that has collected the values.
    recorded = partial(main, ["ui", "--json", *arguments])
    wait_until(lambda: f"exit code {code}" if (code := recorded()) else None, SECONDS)
    with cluster_page(*arguments, "--dead-letters", letters) as url:
        browser.open(url)
        wait_for_query(browser, "running", lag="0")
        assert browser.run("document.querySelector('.query h2').textContent") == name
        query.stop()
        kafka_cluster.produce(name, values(20, 25))
        wait_for_query(browser, "ended", lag="5")

        rows = browser.run(
            "[...document.querySelectorAll('.query tbody tr')].map((row) => "
            "[...row.children].map((cell) => cell.textContent))"
        )
        assert {row[0] for row in rows} == {f"{name}-0", f"{name}-1"}
        assert sum(int(row[3]) for row in rows) == 5
        shown = browser.run("document.getElementById('letters').innerText")
        assert f"{letters}-0" in shown
        assert f"{name}-0 at 0, builtins.ValueError: no zeros" in shown
        assert browser.problems() == []


def test_page_of_a_driver(
    browser: Browser,
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    topic: TopicFactory,
    checkpoint: str,
) -> None:
    """
    The page of a MetricsListener follows a query of its session through a failure, a restart and a
    replay, and shows the error.
    """
    name = topic(2)
    brokers = {"kafka.bootstrap.servers": kafka_cluster.bootstrap}
    options = {**brokers, "subscribe": name, "startingOffsets": "earliest"}
    query = Stream(spark, options, checkpoint)
    listener = MetricsListener(port=0, options=options, refresh_seconds=0.2)
    spark.streams.addListener(listener)
    try:
        kafka_cluster.produce(name, values(0, 20))
        started = query.start()
        query.await_values(texts(0, 20))
        browser.open(f"http://127.0.0.1:{listener.port}/")
        wait_for_query(browser, "running", lag="0", micro_batch="0", failures="0", replays="0")
        assert browser.run("document.querySelector('.query h2').textContent") == str(started.id)

        query.fail = True
        kafka_cluster.produce(name, values(20, 25))
        wait_until(lambda: "the query runs" if started.isActive else None, SECONDS)
        wait_for_query(browser, "failed", failures="1")
        assert "planted failure" in browser.run("document.getElementById('errors').innerText")

        query.fail = False
        query.start()
        query.await_values(texts(0, 25))
        wait_for_query(browser, "running", lag="0", failures="1", replays="1")
        assert browser.problems() == []
    finally:
        query.stop()
        spark.streams.removeListener(listener)
        listener.close()
