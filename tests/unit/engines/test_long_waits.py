"""
A wait of more than a few seconds is logged while it lasts, with what is waited for.
"""

from __future__ import annotations

import logging
import queue
import socket
from typing import TYPE_CHECKING

import pytest
from tests.support import fetching
from tests.support.stub_behaviour import FETCH, LIST_OFFSETS
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka import name_resolution, retry
from pyspark_pykafka.engines.librdkafka import client, range_reader
from pyspark_pykafka.engines.selection import fetch
from pyspark_pykafka.engines.wire.network import connect, transport
from pyspark_pykafka.errors import BrokerUnavailableError
from pyspark_pykafka.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from pyspark_pykafka.retry import Backoff, Deadline, retry_until
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.settings.wire_config import Address, wire_config

if TYPE_CHECKING:
    from collections.abc import Iterator

T0 = TopicPartition("t", 0)
LONG, DELAY = 0.2, 1.0
#: librdkafka with a setting that wire does not support, so that librdkafka reads the offsets too.
ALONE = "librdkafka-alone"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Let a wait count as long after a fraction of a second.
    """
    for module in (retry, transport, client, range_reader, connect, name_resolution):
        monkeypatch.setattr(module, "LONG_WAIT_SECONDS", LONG)


class SlowOnce(Behaviour):
    """
    A broker whose first response of one kind comes late.
    """

    slow_api = FETCH

    def delay(self, node: int, api_key: int) -> float:  # noqa: ARG002
        if api_key == self.slow_api:
            self.slow_api = -1
            return DELAY
        return 0.0


@pytest.fixture
def stubs() -> Iterator[StubCluster]:
    """
    Return a cluster with a topic of 1,000 records.
    """
    with StubCluster(SlowOnce()) as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("engine", "api"),
    [
        ("wire", FETCH),
        ("wire", LIST_OFFSETS),
        ("librdkafka", FETCH),
        (ALONE, FETCH),
        (ALONE, LIST_OFFSETS),
    ],
)
def test_a_slow_response_is_logged(
    stubs: StubCluster, caplog: pytest.LogCaptureFixture, engine: str, api: int
) -> None:
    """
    Before a slow response to a task has arrived, a warning names the partition or the request.
    """
    stubs.set(slow_api=api)
    kafka = {"bootstrap.servers": stubs.bootstrap}
    if engine == ALONE:
        kafka["topic.blacklist"], engine = "none", "librdkafka"
    settings = fetching.settings(
        stubs.bootstrap, engine, schema=fetching.VALUES, kafka=KafkaSettings.of(kafka)
    )

    rows = sum(batch.num_rows for batch in fetch(OffsetRange(T0, EARLIEST, LATEST), settings))

    assert rows == 1000
    warnings = [text for _, level, text in caplog.record_tuples if level == logging.WARNING]
    assert any("waiting" in text and " s at most" in text for text in warnings), warnings


def test_repeated_attempts_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """
    A request that fails again and again is logged once, with its error and the time that is left.
    """
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    def fail() -> None:
        msg = "reading the offsets of t-0 failed"
        raise BrokerUnavailableError(msg)

    deadline = Deadline.after(60.0, lambda: clock[0], sleep)
    with pytest.raises(BrokerUnavailableError):
        retry_until(fail, deadline, Backoff(0.05, 1.0))

    ((_, level, text),) = caplog.record_tuples
    assert level == logging.WARNING
    assert "reading the offsets of t-0 failed; retrying for" in text


def test_a_slow_lookup_of_a_host_name_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A lookup that the DNS server does not answer is logged with the host name.
    """
    looked_up: queue.SimpleQueue[None] = queue.SimpleQueue()

    def getaddrinfo(*_args: object, flags: int = 0) -> list[object]:
        if flags != socket.AI_NUMERICHOST:
            looked_up.get(timeout=DELAY * 10)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    class ReleasingHandler(logging.Handler):
        def emit(self, _record: logging.LogRecord) -> None:
            looked_up.put(None)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    handler, logger = ReleasingHandler(), logging.getLogger("pyspark_pykafka")
    logger.addHandler(handler)
    config = wire_config(KafkaSettings.of({"bootstrap.servers": "broker:9092"}))
    try:
        with pytest.raises(BrokerUnavailableError, match="cannot be resolved"):
            connect.connect(Address("broker", 9092), config, Deadline.after(DELAY * 20))
    finally:
        logger.removeHandler(handler)

    ((_, _, text),) = caplog.record_tuples
    assert "broker:9092" in text
    assert "waiting" in text
