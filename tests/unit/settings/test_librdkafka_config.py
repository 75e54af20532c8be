"""
The configuration of librdkafka's clients, tested with the clients themselves.
"""

from __future__ import annotations

import re

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from pyspark_pykafka.engines.error_mapping import translating_errors
from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.settings import PROPERTIES, KafkaSettings, Property, Role
from pyspark_pykafka.settings.librdkafka_config import (
    admin_config,
    api_timeout_ms,
    consumer_config,
    delivery_timeout_ms,
    max_block_ms,
    producer_config,
)

NONE = KafkaSettings.of({})


def settings(**options: str) -> KafkaSettings:
    return KafkaSettings.of(options)


def test_consumer_has_the_java_clients_defaults() -> None:
    """
    Where librdkafka's defaults differ from the Java client's, Java's are used.
    """
    config = consumer_config(NONE, group_id="g")

    assert config["isolation.level"] == "read_uncommitted"
    assert config["check.crcs"] == "true"
    assert config["auto.offset.reset"] == "error"
    assert config["enable.auto.commit"] == "false"
    assert config["enable.partition.eof"] == "true"
    assert config["group.id"] == "g"
    assert config["socket.timeout.ms"] == "30000"


def test_producer_has_the_java_clients_defaults() -> None:
    """
    Idempotence, all acknowledgements, murmur2, a delivery timeout of two minutes, 1 MiB requests.
    """
    config = producer_config(NONE)

    assert config["enable.idempotence"] == "true"
    assert config["acks"] == "-1"
    assert config["partitioner"] == "murmur2_random"
    assert config["delivery.timeout.ms"] == "120000"
    assert config["message.max.bytes"] == "1048576"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("check.crcs", "false"),
        ("fetch.wait.max.ms", "500"),
        ("isolation.level", "read_committed"),
        ("client.id", "mine"),
        ("group.id", "mine"),
        ("enable.metrics.push", "true"),
    ],
)
def test_the_users_setting_takes_precedence(name: str, value: str) -> None:
    """
    The user's setting is never replaced by a default.
    """
    assert consumer_config(settings(**{name: value}), group_id="g")[name] == value


def test_an_alias_replaces_the_default() -> None:
    """
    The user's setting replaces the default even under another name of the setting.
    """
    config = producer_config(settings(**{"message.timeout.ms": "5", "queue.buffering.max.ms": "1"}))

    assert config["delivery.timeout.ms"] == "5"
    assert "message.timeout.ms" not in config


def test_the_read_sets_the_isolation_level() -> None:
    """
    The parsed level can be passed in, so that driver and executors have the same level.
    """
    config = consumer_config(NONE, group_id="g", isolation_level="read_committed")

    assert config["isolation.level"] == "read_committed"


def test_a_long_fetch_gets_a_longer_socket_timeout() -> None:
    """
    The socket timeout exceeds the fetch wait, since librdkafka rejects a shorter one.
    """
    config = consumer_config(settings(**{"fetch.max.wait.ms": "60000"}), group_id="g")

    Consumer(config).close()
    assert config["socket.timeout.ms"] == "61000"


def test_the_buffer_holds_the_largest_request() -> None:
    """
    A record of the maximum size fits into the producer's buffer.
    """
    config = producer_config(settings(**{"max.request.size": "100000000"}))

    assert int(config["queue.buffering.max.kbytes"]) * 1024 > 100_000_000


def test_timeouts_have_javas_defaults_and_names() -> None:
    """
    Timeouts that librdkafka lacks are applied by the connector.
    """
    set_by_user = settings(
        **{"max.block.ms": "1", "default.api.timeout.ms": "2", "message.timeout.ms": "3"}
    )

    assert (max_block_ms(NONE), api_timeout_ms(NONE)) == (60_000, 60_000)
    assert delivery_timeout_ms(NONE) == 120_000
    assert (
        max_block_ms(set_by_user),
        api_timeout_ms(set_by_user),
        delivery_timeout_ms(set_by_user),
    ) == (1, 2, 3)


def test_invalid_settings_make_no_configuration() -> None:
    """
    An invalid setting raises OptionsError, even if it was not parsed with the options.
    """
    with pytest.raises(OptionsError, match=r"kafka\.acks is '1'"):
        producer_config(settings(acks="1"))


def test_librdkafka_accepts_the_defaults() -> None:
    """
    All three clients can be created, even with settings that are meant for another client.
    """
    mixed = settings(**{"fetch.min.bytes": "1", "linger.ms": "1", "acks": "all"})

    Consumer(consumer_config(mixed, group_id="g")).close()
    Producer(producer_config(mixed)).flush(0)
    AdminClient(admin_config(mixed)).poll(0)


def example(setting: Property) -> str:
    if setting.kind == "bool":
        return "true"
    if setting.kind in ("int", "number"):
        return setting.limits[-1]
    return (
        setting.limits[0]
        if setting.limits
        else {"debug": "conf", "acks": "-1"}.get(setting.name, "1")
    )


def rejection(setting: Property) -> str:
    config = {setting.name: example(setting)}
    try:
        if setting.role is Role.CONSUMER:
            Consumer({"group.id": "g", **config}).close()
        else:
            Producer(config)
    except KafkaException as refusal:
        return str(refusal)
    return ""


@pytest.mark.parametrize("name", sorted(PROPERTIES))
def test_librdkafka_knows_every_property(name: str) -> None:
    """
    Each name in the table is known to librdkafka, and each limit is within librdkafka's.
    """
    refusal = rejection(PROPERTIES[name])

    # Some properties are of no use without a file, other settings, or another operating system.
    assert not refusal or re.search("Failed to create|not supported in this build", refusal)


def test_a_rejection_by_librdkafka_is_an_option_error() -> None:
    """
    A configuration that only librdkafka can reject is reported as a mistake in the options.
    """
    config = producer_config(settings(**{"security.protocol": "ssl", "ssl.key.pem": "canary"}))

    with (
        pytest.raises(OptionsError, match=r"making a writer: .*ssl\.key\.pem failed") as caught,
        translating_errors("making a writer"),
    ):
        Producer(config)

    assert "canary" not in str(caught.value)
