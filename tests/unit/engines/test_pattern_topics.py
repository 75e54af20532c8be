"""
A pattern does not select the ledgers of exactly-once streams; a name does.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.metadata_backends import metadata_backend_of
from tests.support.stub_behaviour import DESCRIBE_CONFIGS
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka.engines.librdkafka import admin
from pyspark_pykafka.engines.metadata import MetadataClient
from pyspark_pykafka.options import Subscribe, SubscribePattern
from pyspark_pykafka.retry import RetryPolicy
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.sink.ledger_entries import ledger_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

ENGINES = ["wire", "librdkafka"]
NOT_AUTHORIZED, UNKNOWN_TOPIC = 29, 3
LEDGER = ledger_topic("prefix")
EVERYTHING = SubscribePattern(".*")


class Ledgers(Behaviour):
    """
    A broker whose topics are compacted if they are listed, and whose settings may be hidden.
    """

    compacted = (LEDGER, "wide-ledger", "compacted")
    setting_error = 0

    def topic_settings(self, node: int, topic: str) -> tuple[int, dict[str, str]]:  # noqa: ARG002
        policy = "compact" if topic in self.compacted else "delete"
        return self.setting_error, {"cleanup.policy": policy}


@pytest.fixture
def stubs() -> Iterator[StubCluster]:
    """
    A ledger, and topics that have only some of its properties.
    """
    topics = {LEDGER: 1, "general-ledger": 1, "wide-ledger": 2, "compacted": 1}
    with StubCluster(Ledgers(topics=topics)) as cluster:
        yield cluster


def client_of(stubs: StubCluster, engine: str) -> MetadataClient:
    """
    Return the driver's metadata client with the backend of an engine.
    """
    kafka = KafkaSettings.of({"bootstrap.servers": stubs.bootstrap})
    return MetadataClient(metadata_backend_of(kafka, "read_committed", engine), RetryPolicy(1, 0.0))


def topics_of(client: MetadataClient, strategy: Subscribe | SubscribePattern) -> set[str]:
    """
    Return the topics that a strategy selects.
    """
    return {tp.topic for tp in client.assignment(strategy).partitions}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_pattern_leaves_ledgers_out(stubs: StubCluster, engine: str) -> None:
    """
    A compacted topic of one partition whose name is that of a ledger is left out, and no other
    topic; its setting is read once.
    """
    client = client_of(stubs, engine)

    for _ in range(3):
        assert topics_of(client, EVERYTHING) == {"general-ledger", "wide-ledger", "compacted"}

    # One request for all topics that have one partition and the name of a ledger.
    assert stubs.stats()["requests"][DESCRIBE_CONFIGS] == 1


@pytest.mark.parametrize("engine", ENGINES)
def test_a_ledger_can_be_named(stubs: StubCluster, engine: str) -> None:
    """
    The option subscribe reads a ledger, without a request for its settings.
    """
    assert topics_of(client_of(stubs, engine), Subscribe((LEDGER,))) == {LEDGER}
    assert DESCRIBE_CONFIGS not in stubs.stats()["requests"]


@pytest.mark.parametrize("engine", ENGINES)
def test_topics_with_hidden_settings_and_the_name_of_a_ledger(
    stubs: StubCluster, engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Without the permission to read a topic's settings, its name decides, and one warning says so.
    """
    stubs.set(setting_error=NOT_AUTHORIZED)
    client = client_of(stubs, engine)

    with caplog.at_level(logging.WARNING, "pyspark_pykafka"):
        for _ in range(2):
            assert topics_of(client, EVERYTHING) == {"wide-ledger", "compacted"}

    (warning,) = (text for text in caplog.messages if "general-ledger" in text)
    assert "subscribe" in warning
    assert "DescribeConfigs" in warning


class WithoutSettings(Ledgers):
    """
    A service whose brokers have no request for settings.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        del self.versions[DESCRIBE_CONFIGS]


@pytest.mark.parametrize("engine", ENGINES)
def test_brokers_without_a_request_for_settings(
    engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    """
    If the brokers have no request for settings, a topic's name decides whether a pattern selects
    it, and one warning names the option that reads it anyway.
    """
    topics = {"general-ledger": 1, "orders": 1}
    with StubCluster(WithoutSettings(topics=topics)) as cluster:
        client = client_of(cluster, engine)
        with caplog.at_level(logging.WARNING, "pyspark_pykafka"):
            for _ in range(2):
                assert topics_of(client, EVERYTHING) == {"orders"}

    (warning,) = (text for text in caplog.messages if "general-ledger" in text)
    assert "subscribe" in warning


class Late(Ledgers):
    """
    A broker that answers the first request for settings too late.
    """

    def delay(self, node: int, api_key: int) -> float:  # noqa: ARG002
        is_first = api_key == DESCRIBE_CONFIGS and self.requests[DESCRIBE_CONFIGS] < 2
        return 4.0 if is_first else 0.0


def test_settings_without_a_response_are_requested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    If librdkafka gets no response to a request for settings in time, a new client sends it again.
    """
    monkeypatch.setattr(admin, "_FIRST_REQUEST_SECONDS", 1.0)
    with StubCluster(Late(topics={LEDGER: 1, "orders": 1})) as cluster:
        assert topics_of(client_of(cluster, "librdkafka"), EVERYTHING) == {"orders"}
        assert cluster.stats()["requests"][DESCRIBE_CONFIGS] == 2


class ManyLedgers(Behaviour):
    """
    Topics with the name of a ledger, one in three with hidden settings, and one in three a ledger.
    """

    def topic_settings(self, node: int, topic: str) -> tuple[int, dict[str, str]]:  # noqa: ARG002
        kind = int(topic.removesuffix("-ledger")) % 3
        policy = "delete" if kind == 1 else "compact"
        return NOT_AUTHORIZED if kind == 2 else 0, {"cleanup.policy": policy}


@pytest.mark.parametrize("engine", ENGINES)
def test_the_settings_of_many_topics_cost_one_request(
    engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    """
    The settings of 200 topics with the name of a ledger are read with one request, once; a topic
    whose settings are hidden does not hide those of the others.
    """
    names = [f"{number}-ledger" for number in range(200)]
    with StubCluster(ManyLedgers(topics=dict.fromkeys(names, 1))) as cluster:
        client = client_of(cluster, engine)
        with caplog.at_level(logging.WARNING, "pyspark_pykafka"):
            for _ in range(2):
                assert topics_of(client, EVERYTHING) == set(names[1::3])
        assert cluster.stats()["requests"][DESCRIBE_CONFIGS] == 1

    hidden = [text for text in caplog.messages if "DescribeConfigs" in text]
    assert len(hidden) == len(names[2::3])
    assert len(caplog.messages) == len(names[0::3]) + len(hidden)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_ledger_that_a_broker_does_not_know_yet(stubs: StubCluster, engine: str) -> None:
    """
    A topic whose settings a broker does not know yet is left out until they are known: if one plan
    selected a ledger and the next one left it out, the next one would report data loss.
    """
    stubs.set(setting_error=UNKNOWN_TOPIC)
    client = client_of(stubs, engine)
    assert topics_of(client, EVERYTHING) == {"wide-ledger", "compacted"}

    stubs.set(setting_error=0)

    assert topics_of(client, EVERYTHING) == {"general-ledger", "wide-ledger", "compacted"}
