"""
Requests about consumer groups through librdkafka's admin client, whose first result may be
incomplete.
"""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from pyspark_pykafka.engines.librdkafka.groups import AdminGroups
from pyspark_pykafka.errors import TimeoutExceededError
from pyspark_pykafka.settings import KafkaSettings


class _Listing:
    """
    The result of a request to all brokers for their consumer groups.
    """

    def __init__(self, groups: list[str], errors: list[KafkaError]) -> None:
        self.valid = [SimpleNamespace(group_id=group) for group in groups]
        self.errors = errors


def test_groups_of_a_broker_that_does_not_respond_are_requested_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    A listing without the groups of one broker is incomplete: it is requested again until all have
    responded.
    """
    timed_out = [KafkaError(KafkaError._TIMED_OUT)]
    listings = iter([_Listing(["a"], timed_out), _Listing(["b", "a"], [])])

    def list_groups(*_: object, **__: object) -> Future[_Listing]:
        future: Future[_Listing] = Future()
        future.set_result(next(listings))
        return future

    monkeypatch.setattr("confluent_kafka.admin.AdminClient.list_consumer_groups", list_groups)
    groups = AdminGroups(KafkaSettings.of({"bootstrap.servers": "127.0.0.1:2", "log_level": "0"}))

    assert groups.list_groups() == ["a", "b"]


def test_listing_groups_without_brokers() -> None:
    """
    If no broker is reached, the error says why.
    """
    settings = {"bootstrap.servers": "127.0.0.1:3", "log_level": "0"}
    groups = AdminGroups(KafkaSettings.of({**settings, "default.api.timeout.ms": "500"}))

    with pytest.raises(TimeoutExceededError, match="127.0.0.1:3: connecting failed"):
        groups.list_groups()
