"""
Clients of librdkafka that read from a stale leader are replaced, up to a limit.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import fetching

from pyspark_pykafka.engines.contract import Watermarks
from pyspark_pykafka.engines.librdkafka import consumer
from pyspark_pykafka.engines.librdkafka.confirmed_watermarks import ConfirmedWatermarks
from pyspark_pykafka.errors import StalledReadError
from pyspark_pykafka.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Generator

REQUESTED = OffsetRange(TopicPartition("t", 0), 0, 100)
CONFIRMED = ConfirmedWatermarks(Watermarks(0, 100), "leader:9092")


def test_the_error_has_the_number_of_stale_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    If no client reads from the leader that two brokers confirm, the error has the number of all
    clients, the first one included.
    """
    clients: list[OffsetRange] = []

    def stale(requested: OffsetRange, *_: object, **__: object) -> Generator[Any, None, Any]:
        clients.append(requested)
        yield from ()
        return consumer._Rest(requested, CONFIRMED)

    monkeypatch.setattr(consumer, "_fetch", stale)

    with pytest.raises(StalledReadError, match="did not read from the leader") as raised:
        list(consumer.fetch(REQUESTED, fetching.settings("broker:9092", "librdkafka")))
    (count,) = re.findall(r"(\d+) clients in a row", str(raised.value))
    assert int(count) == len(clients)
