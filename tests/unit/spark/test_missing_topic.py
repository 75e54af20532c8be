"""
A write to a missing topic fails on the driver, before any task starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StringType, StructField, StructType
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka import DefaultSource
from pyspark_pykafka.errors import MissingTopicError

if TYPE_CHECKING:
    from collections.abc import Iterator

VALUE = StructType([StructField("value", StringType())])


@pytest.fixture
def cluster() -> Iterator[StubCluster]:
    """
    A broker with the topic ``t``, for one test: librdkafka keeps requesting a missing topic while
    its client closes, and other tests count requests.
    """
    with StubCluster(Behaviour()) as cluster:
        yield cluster


def sink(cluster: StubCluster, engine: str, **options: str) -> DefaultSource:
    """
    Return the data source of a write that waits 0.2 s for a missing topic.
    """
    brokers = {"kafka.bootstrap.servers": cluster.bootstrap, "kafka.max.block.ms": "200"}
    return DefaultSource({**brokers, "engine": engine, **options})


@pytest.mark.parametrize("engine", ["wire", "librdkafka"])
def test_a_missing_topic_is_an_error_of_the_driver(cluster: StubCluster, engine: str) -> None:
    """
    Making either writer on the driver raises the error for a missing topic.
    The error's class is public: isolate_poison and supervise find its name in Spark's text.
    """
    source = sink(cluster, engine, topic="misspelt")

    for make in (source.writer, source.streamWriter):
        with pytest.raises(
            MissingTopicError, match="topic 'misspelt' was not found within"
        ) as raised:
            make(VALUE, overwrite=False)
        assert type(raised.value) is MissingTopicError


def test_an_existing_topic_is_looked_up_once_in_a_process(cluster: StubCluster) -> None:
    """
    Spark makes a writer for each micro-batch of a stream; only the first one queries the brokers.
    """
    # A busy machine must not make the first writer try again.
    source = sink(cluster, "wire", topic="t", **{"kafka.max.block.ms": "60000"})
    source.writer(VALUE, overwrite=False)
    before = cluster.stats()["requests"]

    for _ in range(3):
        source.streamWriter(VALUE, overwrite=False)

    assert cluster.stats()["requests"] == before
