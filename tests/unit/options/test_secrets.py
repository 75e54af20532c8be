"""
Secrets reach the client but no log, error or repr.
"""

from __future__ import annotations

import copy
import logging
import pickle
import traceback
from typing import TYPE_CHECKING, cast

import pytest

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.options import (
    ZooKeeperNodes,
    parse_batch_source,
    parse_sink,
    parse_stream_source,
)
from pyspark_pykafka.progress.group_store import GroupStore
from pyspark_pykafka.progress.zookeeper_store import ZooKeeperStore
from pyspark_pykafka.settings import MASK, PRINTABLE, PROPERTIES, KafkaSettings
from pyspark_pykafka.settings.librdkafka_config import consumer_config, producer_config

if TYPE_CHECKING:
    from pyspark_pykafka.engines.metadata import MetadataClient

CANARY = "canary-5f3759df"
SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}

# What librdkafka itself calls sensitive, and the passwords of the Java client.
SENSITIVE = [
    "ssl.key.location",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.ca.pem",
    "ssl.certificate.pem",
    "ssl.keystore.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.certificates",
    "ssl.truststore.password",
    "sasl.username",
    "sasl.password",
    "sasl.jaas.config",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.private.key.pem",
]


@pytest.mark.parametrize("name", [*SENSITIVE, "not.a.setting", "ssl_key"])
@pytest.mark.parametrize("spelling", [str.lower, str.upper])
def test_no_secret_in_any_text(
    name: str, spelling: type[str], caplog: pytest.LogCaptureFixture
) -> None:
    """
    No repr, error or log shows the value, whether the option is valid or not, and whether its name
    is in lower or upper case.
    """
    caplog.set_level(logging.DEBUG)
    options = {**SERVERS, "subscribe": "t", f"kafka.{spelling(name)}": CANARY, name: CANARY}

    with pytest.raises(OptionsError, match="are wrong") as caught:
        parse_stream_source(options)

    settings = KafkaSettings.of({spelling(name): CANARY})
    texts = [
        str(caught.value),
        repr(caught.value),
        "".join(traceback.format_exception(caught.value)),
        caplog.text,
        repr(settings),
        str(settings),
        f"{settings}",
    ]
    assert [text for text in texts if CANARY in text] == []
    assert MASK in repr(settings)


def test_masked_secrets_survive_pickling() -> None:
    """
    A value that is masked in the repr survives copies and pickling, and reaches the client.
    """
    credentials = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.username": CANARY,
        "kafka.sasl.password": CANARY,
    }

    source = parse_batch_source({**SERVERS, "subscribe": "t", **credentials})
    sink = parse_sink({**SERVERS, **credentials}, streaming=True)

    assert CANARY not in repr(source) + str(source) + repr(sink) + repr(vars_of(source))
    assert pickle.loads(pickle.dumps(source)) == source == copy.deepcopy(source)  # noqa: S301
    assert consumer_config(source.kafka, group_id="g")["sasl.password"] == CANARY
    assert producer_config(sink.kafka)["sasl.password"] == CANARY


def vars_of(value: object) -> dict[str, object]:
    return {name: getattr(value, name) for name in value.__slots__}  # type: ignore[attr-defined]


def test_sensitive_names_are_not_printable() -> None:
    """
    The allow-list of printable names contains no sensitive name.
    """
    assert not PRINTABLE & set(SENSITIVE)
    assert not [name for name in PRINTABLE if "password" in name or "secret" in name]
    assert all(not PROPERTIES[name].printable for name in SENSITIVE if name in PROPERTIES)


def test_repr_shows_harmless_values() -> None:
    """
    The repr shows all names, and the values that help to find a mistake.
    """
    settings = KafkaSettings.of({"sasl.password": CANARY, "bootstrap.servers": "h:9092"})

    assert repr(settings) == f"KafkaSettings(bootstrap.servers='h:9092', sasl.password={MASK})"


def test_progress_stores_hide_their_credentials() -> None:
    """
    The repr of a store shows its group or node, and neither the password nor the digest.
    """
    kafka = KafkaSettings.of({"sasl.password": CANARY, "bootstrap.servers": "h:9092"})
    nodes = ZooKeeperNodes("zk:2181", "/pykafka", "q", 10_000, ("me", CANARY), "creator")
    metadata = cast("MetadataClient", None)

    assert repr(GroupStore(kafka, "g", metadata)) == "GroupStore('g', is_member=False)"
    assert (
        repr(ZooKeeperStore(nodes, lambda _: {}))
        == "ZooKeeperStore('zk:2181', '/pykafka/q', connected=False)"
    )
