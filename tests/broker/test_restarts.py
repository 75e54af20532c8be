"""
A supervised query on a real broker: transient failures, fatal failures and signals.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest
from tests.support.streams import Stream, texts, values

from pyspark_pykafka.failures.restarts import QueryFailure, RestartPolicy, supervise
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.query import StreamingQuery

    from pyspark_pykafka.testing import KafkaCluster
    from pyspark_pykafka.testing.plugin import TopicFactory

QUICK = RestartPolicy(initial_delay=0.1, max_delay=0.2, attempts=5)


def test_failing_query_is_restarted(
    kafka_cluster: KafkaCluster, stream: Callable[..., Stream], topic: TopicFactory
) -> None:
    """
    A query that fails is restarted, then succeeds, and every record arrives once.
    """
    name = topic(2)
    kafka_cluster.produce(name, values(0, 20))
    query = stream(subscribe=name)
    failures: list[QueryFailure] = []

    def start() -> StreamingQuery:
        query.fail = not failures
        return query.start(availableNow=True)

    supervise(start, QUICK, failures.append)

    assert query.values == texts(0, 20)
    assert [(failure.number, failure.fatal) for failure in failures] == [(1, False)]
    assert all("planted failure" in str(failure.error) for failure in failures)


def test_data_loss_is_not_restarted(
    kafka_cluster: KafkaCluster, stream: Callable[..., Stream], topic: TopicFactory
) -> None:
    """
    Data loss is raised at once: a restart would not bring the records back.
    """
    name = topic(1)
    kafka_cluster.produce(name, values(0, 5))
    query = stream(subscribe=name, startingOffsets=f'{{"{name}": {{"0": 9}}}}')
    failures: list[QueryFailure] = []

    with pytest.raises(Exception, match="KAFKA_DATA_LOSS"):
        supervise(lambda: query.start(availableNow=True), QUICK, failures.append)

    assert [(failure.fatal, failure.pause_seconds) for failure in failures] == [(True, None)]


def test_signal_stops_the_query(
    kafka_cluster: KafkaCluster, stream: Callable[..., Stream], topic: TopicFactory
) -> None:
    """
    SIGTERM stops the query, and no error is raised.
    """
    name = topic(1)
    kafka_cluster.produce(name, values(0, 5))
    query = stream(subscribe=name)

    def end() -> None:
        wait_until(lambda: None if query.values else "nothing was read", 60)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=end)
    thread.start()
    supervise(query.start, QUICK)
    thread.join()

    assert query.query is not None
    assert not query.query.isActive
    assert query.query.exception() is None
