"""
Sessions that expire every few seconds (KIP-368) are renewed during reads and writes.
"""

from __future__ import annotations

import struct
import time
from itertools import cycle
from typing import TYPE_CHECKING, Any

import pytest
from tests.broker.test_wire_connection import (
    OAUTH_MODULE,
    PASSWORD,
    SCRAM_MODULE,
    USER,
    create_scram_users,
    login,
)
from tests.support import fetching, producing
from tests.support.proxied import ProxiedCluster

from pyspark_pykafka.engines.selection import fetch, produce
from pyspark_pykafka.offsets import OffsetRange, TopicPartition
from pyspark_pykafka.testing import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

SESSION_MS = 3_000
HANDSHAKE, AUTHENTICATE = 17, 36
#: The start of a handshake response: correlation id, error code, number of mechanisms.
HANDSHAKE_RESPONSE = struct.Struct(">ihi")
COUNT = 3_000
VALUES = [b"%d." % number + b"x" * 990 for number in range(COUNT)]
QUOTED = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
PLAIN_MODULE = (
    f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{QUOTED}";'
).replace("\\", "\\\\")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
CONFIG: dict[str, str | int | float | bool] = {
    "listener.security.protocol.map": (
        "CLIENT:PLAINTEXT,PROXIED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
    ),
    "listener.name.proxied.sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "listener.name.proxied.plain.sasl.jaas.config": PLAIN_MODULE,
    "listener.name.proxied.scram-sha-256.sasl.jaas.config": SCRAM_MODULE,
    "listener.name.proxied.scram-sha-512.sasl.jaas.config": SCRAM_MODULE,
    "listener.name.proxied.oauthbearer.sasl.jaas.config": OAUTH_MODULE,
    **{
        f"listener.name.proxied.{mechanism}.connections.max.reauth.ms": SESSION_MS
        for mechanism in map(str.lower, MECHANISMS)
    },
}
LOGINS = {
    "PLAIN": login("PLAIN"),
    "SCRAM-SHA-256": login("SCRAM-SHA-256"),
    "SCRAM-SHA-512": login("SCRAM-SHA-512"),
    "OAUTHBEARER": {
        "sasl_mechanism": "OAUTHBEARER",
        "enable_sasl_oauthbearer_unsecure_jwt": "true",
        "sasl_oauthbearer_config": f"principal={USER}",
    },
}


@pytest.fixture(scope="module")
def renewing() -> Iterator[ProxiedCluster]:
    """
    A broker whose logins expire after three seconds, with a topic of numbered records.
    """
    with ProxiedCluster(brokers=1, config=CONFIG) as cluster:
        create_scram_users(cluster.kafka)
        cluster.kafka.create_topic("slow", 1)
        # Small batches, so that there are many fetches.
        for start in range(0, COUNT, 50):
            cluster.kafka.produce("slow", [Record(value) for value in VALUES[start : start + 50]])
        yield cluster


def padding() -> Callable[[int, bytes], bytes]:
    """
    Return a hook that adds a mechanism name of varying length to handshake responses.

    A reader that parsed such a response instead of a fetch response would take a part of the name
    for a batch's base offset: the first length is chosen for that.
    """
    sizes = cycle((79, 76, 200, 20, 130))

    def padded(key: int, frame: bytes) -> bytes:
        if key != HANDSHAKE:
            return frame
        correlation, error, count = HANDSHAKE_RESPONSE.unpack_from(frame)
        name = b"M" * max(next(sizes) - len(frame) - 2, 1)
        rest = frame[HANDSHAKE_RESPONSE.size :] + struct.pack(">h", len(name)) + name
        return HANDSHAKE_RESPONSE.pack(correlation, error, count + 1) + rest

    return padded


def slow_read(cluster: ProxiedCluster, mechanism: str, seconds: float) -> list[tuple[int, bytes]]:
    """
    Return the offsets and values of a read that takes the given time, with small fetches.
    """
    settings = fetching.settings(
        cluster.bootstrap,
        "wire",
        kafka=producing.settings(
            cluster.bootstrap, security_protocol="SASL_PLAINTEXT", **LOGINS[mechanism]
        ),
        schema=fetching.VALUES,
        memory_bytes=1 << 20,
    )
    rows: list[tuple[int, bytes]] = []
    for batch in fetch(OffsetRange(TopicPartition("slow", 0), 0, COUNT), settings):
        rows += [(row["offset"], row["value"]) for row in batch.to_pylist()]
        time.sleep(seconds * batch.num_rows / COUNT)
    return rows


def check_slow_read(cluster: ProxiedCluster, mechanism: str, seconds: float) -> None:
    proxy = cluster.proxies[1]
    logins, accepted = proxy.requests[AUTHENTICATE], proxy.accepted
    proxy.on_response = padding()
    try:
        rows = slow_read(cluster, mechanism, seconds)
    finally:
        proxy.on_response = None

    assert len(rows) == COUNT
    # `is True`: pytest takes minutes to show how two such lists differ.
    assert (rows == list(enumerate(VALUES))) is True
    rounds = 2 if mechanism.startswith("SCRAM") else 1
    assert proxy.requests[AUTHENTICATE] - logins >= rounds * (1 + int(seconds / 3))
    assert proxy.accepted - accepted <= 1


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_slow_reader_logs_in_again(renewing: ProxiedCluster, mechanism: str) -> None:
    """
    Each record arrives once, at its offset, over one connection, although its session expires.
    """
    check_slow_read(renewing, mechanism, 4.0)


@pytest.mark.soak
@pytest.mark.parametrize("mechanism", LOGINS)
def test_a_slow_reader_logs_in_many_times(renewing: ProxiedCluster, mechanism: str) -> None:
    """
    A read that takes 30 seconds logs in every three seconds, and each record arrives once.
    """
    check_slow_read(renewing, mechanism, 30.0)


def check_busy_writer(cluster: ProxiedCluster, topic: str, seconds: float) -> None:
    """
    Write with requests always in flight, and check that the broker closed no connection.
    """
    proxy = cluster.proxies[1]
    cluster.kafka.create_topic(topic, 1)
    logins, accepted = proxy.requests[AUTHENTICATE], proxy.accepted
    end = time.monotonic() + seconds

    def batches() -> Iterator[pa.RecordBatch]:
        number = 0
        while time.monotonic() < end:
            records = [Record(b"%d." % index + b"x" * 200) for index in range(number, number + 200)]
            yield producing.batch_of(records)
            number += 200

    login: dict[str, Any] = {**LOGINS["PLAIN"], "security_protocol": "SASL_PLAINTEXT"}
    settings = producing.settings(
        cluster.bootstrap, batch_size=16_000, buffer_memory=300_000, **login
    )
    proxy.delay = 0.02
    try:
        written = produce(batches(), settings, topic, "wire")
    finally:
        proxy.delay = 0.0

    numbers = [int((record.value or b"").split(b".")[0]) for record in cluster.kafka.consume(topic)]
    assert written > 0
    # `is True`: as above.
    assert (numbers == list(range(written))) is True
    assert proxy.requests[AUTHENTICATE] - logins >= 1 + int(seconds / 3)
    assert proxy.accepted - accepted == 1


def test_a_busy_writer_logs_in_again(renewing: ProxiedCluster) -> None:
    """
    A writer that always has requests in flight pauses for its login, and is not disconnected.
    """
    check_busy_writer(renewing, "busy", 6.0)


@pytest.mark.soak
def test_a_busy_writer_logs_in_many_times(renewing: ProxiedCluster) -> None:
    """
    A busy writer that logs in every three seconds is not disconnected within 30 seconds.
    """
    check_busy_writer(renewing, "busier", 30.0)
