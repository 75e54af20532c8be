"""
Quotas of real brokers: throttled readers and writers wait, and lose nothing.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.support import fetching, kafka_tool, producing

from pyspark_pykafka.engines.selection import fetch
from pyspark_pykafka.offsets import OffsetRange, TopicPartition
from pyspark_pykafka.testing import Record
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.testing import KafkaCluster
    from pyspark_pykafka.testing.plugin import TopicFactory

ENGINES = ["wire", pytest.param("librdkafka", marks=pytest.mark.soak)]
COUNT = 3_000
RECORDS = [Record(b"%d" % number + b"." * 1_000) for number in range(COUNT)]
#: Brokers average over the last ten seconds; a higher rate is throttled for several seconds.
BYTES_A_SECOND = 150_000
#: Less than the throttle time, so that a client that waits for a response would time out.
TIMEOUT_MS = 1_500
FEWEST_SECONDS = 3.0

#: How long it may take until a broker applies a quota.
QUOTA_SECONDS = 60


@pytest.fixture
def limited(kafka_cluster: KafkaCluster) -> Callable[[str, str], str]:
    """
    Return a function that creates a client id with a quota.
    """

    def limiting(quota: str, client: str) -> str:
        tool, entity = "kafka.admin.ConfigCommand", ("--entity-type", "clients")
        change = ("--alter", "--add-config", f"{quota}={BYTES_A_SECOND}")
        kafka_tool.run(tool, kafka_cluster.bootstrap, *change, *entity, "--entity-name", client)

        def missing() -> str | None:
            # The command returns once the controller has the quota, perhaps before the broker has
            # it.
            description = kafka_tool.run(
                tool, kafka_cluster.bootstrap, "--describe", *entity, "--entity-name", client
            )
            return None if f"{quota}=" in description else f"the broker has no {quota} for {client}"

        wait_until(missing, QUOTA_SECONDS)
        return client

    return limiting


@pytest.mark.parametrize("engine", ENGINES)
def test_a_throttled_reader_waits(
    kafka_cluster: KafkaCluster,
    topic: TopicFactory,
    limited: Callable[[str, str], str],
    caplog: pytest.LogCaptureFixture,
    engine: str,
) -> None:
    """
    All records arrive at the pace of the quota, though each throttle time exceeds the request
    timeout. No response counts as malformed, and the connections stay: a new one would evade the
    throttle.
    """
    caplog.set_level(logging.INFO, "pyspark_pykafka")
    caplog.set_level(logging.DEBUG, "pyspark_pykafka.wire")
    name = topic()
    kafka_cluster.produce(name, RECORDS)
    settings = fetching.settings(
        kafka_cluster.bootstrap,
        engine,
        kafka=producing.settings(
            kafka_cluster.bootstrap,
            client_id=limited("consumer_byte_rate", f"slow-reader-{engine}"),
            socket_timeout_ms=TIMEOUT_MS,
            **({"debug": "broker"} if engine == "wire" else {}),
        ),
        schema=fetching.VALUES,
        group_id="quota",
        poll_timeout_ms=60_000,
        end_retries=0,
        end_retry_ms=500,
        memory_bytes=1 << 20,
    )

    started_at = time.monotonic()
    batches = list(fetch(OffsetRange(TopicPartition(name, 0), 0, COUNT), settings))

    assert time.monotonic() - started_at >= FEWEST_SECONDS
    table = pa.Table.from_batches(batches)
    assert table["value"].to_pylist() == [record.value for record in RECORDS]
    assert "no valid FetchResponse" not in caplog.text
    # One connection to the bootstrap address and one to the leader, and a new one after each
    # timeout: a busy machine may exceed the short timeout.
    timeouts = caplog.text.count(" timed out")
    assert caplog.text.count(": connected with") <= 2 + timeouts


@pytest.mark.soak
@pytest.mark.parametrize("engine", ["wire", "librdkafka"])
def test_a_throttled_writer_waits(
    kafka_cluster: KafkaCluster,
    topic: TopicFactory,
    limited: Callable[[str, str], str],
    caplog: pytest.LogCaptureFixture,
    engine: str,
) -> None:
    """
    All records are written once at the pace of the quota, without retries.
    """
    caplog.set_level(logging.INFO, "pyspark_pykafka")
    name = topic()
    batches = [producing.batch_of(RECORDS[start : start + 100]) for start in range(0, COUNT, 100)]
    client = limited("producer_byte_rate", f"slow-writer-{engine}")

    started_at = time.monotonic()
    written = producing.write(
        kafka_cluster.bootstrap,
        batches,
        name,
        engine,
        client_id=client,
        request_timeout_ms=TIMEOUT_MS,
        batch_size=100_000,
    )

    assert time.monotonic() - started_at >= FEWEST_SECONDS
    assert written == COUNT
    values = [record.value for record in kafka_cluster.consume(name)]
    assert values == [record.value for record in RECORDS]
    assert " again" not in caplog.text
