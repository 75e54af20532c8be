"""
The reprs of stateful classes show their state, and no setting that could be secret.
"""

from __future__ import annotations

from tests.support.clock import Clock

from pyspark_pykafka.engines.librdkafka.admin import RetryingAdmin
from pyspark_pykafka.engines.metadata import MetadataClient
from pyspark_pykafka.engines.selection import metadata_backend
from pyspark_pykafka.engines.wire.network.broker_rotation import BrokerRotation
from pyspark_pykafka.engines.wire.network.cluster import Cluster
from pyspark_pykafka.engines.wire.network.reachability import Reachability
from pyspark_pykafka.engines.wire.network.throttle import Throttle
from pyspark_pykafka.engines.wire.producer.sender import Sender
from pyspark_pykafka.engines.wire.producer.session import IdempotentSession
from pyspark_pykafka.engines.wire.records.record_batch import ProducerIdAndEpoch
from pyspark_pykafka.retry import RetryPolicy
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.settings.wire_config import Address, wire_config, wire_producer_config

CANARY = "canary"
KAFKA = KafkaSettings.of(
    {
        "bootstrap.servers": "b:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": CANARY,
    }
)
B = Address("b", 1)


def test_clients_show_their_state_and_no_secret() -> None:
    """
    The driver's clients name their backend or brokers, and whether they are connected.
    """
    backend = metadata_backend(KAFKA, "read_committed", "wire")
    texts = [repr(MetadataClient(backend, RetryPolicy(3, 1.0))), repr(RetryingAdmin(KAFKA))]

    assert texts == [
        "<MetadataClient WireMetadata, 3 attempts>",
        "<RetryingAdmin b:1, not connected>",
    ]
    assert CANARY not in "".join(texts)


def test_a_sender_shows_its_buffer() -> None:
    """
    A sender shows the bytes that are not acknowledged, and the brokers with requests in flight.
    """
    cluster = Cluster(wire_config(KAFKA))
    session = IdempotentSession(ProducerIdAndEpoch(1, 0))
    sender = Sender(cluster, wire_producer_config(KAFKA), session, {})

    assert repr(sender) == (
        "<Sender <Accumulator 0 of 67108864 bytes in 0 partitions>, 0 brokers in flight>"
    )


def test_network_state_shows_demoted_and_unreachable_brokers() -> None:
    """
    Demoted and unreachable brokers are shown until that state expires; a throttle is shown with the
    seconds that are left.
    """
    clock = Clock()
    reachability = Reachability(clock.now)
    rotation = BrokerRotation(reachability.is_unreachable, now=clock.now)
    throttle = Throttle(B, clock.now, clock.sleep)
    reachability.record_failure(B)
    rotation.record_request(B)
    rotation.demote(B)
    throttle.until = clock.time + 1.5

    assert repr(reachability) == "<Reachability unreachable: b:1>"
    assert repr(rotation) == "<BrokerRotation 1 requests, demoted: b:1>"
    assert repr(throttle) == "<Throttle b:1, 1.5 s left>"

    clock.sleep(3600)
    assert repr(reachability) == "<Reachability unreachable: none>"
    assert repr(rotation) == "<BrokerRotation 1 requests, demoted: none>"
    assert repr(throttle) == "<Throttle b:1, 0.0 s left>"
