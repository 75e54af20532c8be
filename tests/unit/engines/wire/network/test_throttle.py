"""
Throttling, on a clock that the tests control (KIP-219).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from tests.support.clock import Clock

from pyspark_pykafka.engines.wire.network.throttle import Throttle
from pyspark_pykafka.engines.wire.protocol.frames import Frame
from pyspark_pykafka.engines.wire.protocol.metadata import METADATA
from pyspark_pykafka.engines.wire.protocol.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from pyspark_pykafka.engines.wire.protocol.transaction_states import (
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
)
from pyspark_pykafka.errors import TimeoutExceededError
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings.wire_config import Address

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.engines.wire.protocol.request import ApiSpec


@pytest.fixture
def clock() -> Clock:
    """
    Return a clock that starts at 100 seconds.
    """
    return Clock()


@pytest.fixture
def throttled(clock: Clock) -> Callable[[int, int], Throttle]:
    """
    Return a function that records a Metadata response of a given version and throttle time.
    """

    def record(version: int, throttle_time_ms: int) -> Throttle:
        throttle = Throttle(Address("b", 9092), clock.now, clock.sleep)
        throttle.record(Frame(METADATA.response, version, memoryview(b"")), throttle_time_ms)
        return throttle

    return record


def test_the_whole_throttle_time_is_waited_out(
    clock: Clock, throttled: Callable[[int, int], Throttle]
) -> None:
    """
    The client waits once, for the whole throttle time; afterwards sending is allowed.
    """
    throttle = throttled(6, 1500)
    throttle.wait(Deadline.after(10, clock.now))
    throttle.wait(Deadline.after(10, clock.now))

    assert clock.slept == [1.5]


def test_a_long_throttle_time_is_logged(
    clock: Clock, throttled: Callable[[int, int], Throttle], caplog: pytest.LogCaptureFixture
) -> None:
    """
    A warning names the broker and the seconds.
    """
    with caplog.at_level(logging.WARNING, "pyspark_pykafka"):
        throttled(6, 60_000).wait(Deadline.after(100, clock.now))

    assert caplog.messages == ["b:9092: throttled by the broker's quota for 60.0 s"]
    assert clock.slept == [60.0]


def test_a_throttle_time_beyond_the_deadline_is_not_waited_out(
    clock: Clock, throttled: Callable[[int, int], Throttle]
) -> None:
    """
    A throttle time beyond the deadline raises an error at once.
    """
    with pytest.raises(TimeoutExceededError, match="for another 60.0 s, until after the deadline"):
        throttled(6, 60_000).wait(Deadline.after(3, clock.now))
    assert clock.slept == []


@pytest.mark.parametrize("api", [OFFSET_FOR_LEADER_EPOCH, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS])
def test_the_client_also_waits_after_apis_that_the_java_client_exempts(
    clock: Clock, api: ApiSpec[object]
) -> None:
    """
    The client waits after a throttled response of any API, since brokers read no request from a
    throttled connection. Kafka's Java client does not wait after these APIs.
    """
    throttle = Throttle(Address("b", 9092), clock.now, clock.sleep)
    throttle.record(Frame(api.response, api.valid_versions[1], memoryview(b"")), 1_500)

    assert throttle.until == clock.now() + 1.5


def test_the_client_does_not_wait_after_old_versions(
    clock: Clock, throttled: Callable[[int, int], Throttle]
) -> None:
    """
    Brokers delay the responses in old versions themselves, so the client does not wait.
    """
    throttled(5, 60_000).wait(Deadline.after(3, clock.now))

    assert clock.slept == []
