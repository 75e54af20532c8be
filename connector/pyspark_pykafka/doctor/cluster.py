"""
Checks the brokers: connection, login, version, transaction limits, replicas, clocks.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.doctor.finding import Finding, failed, ok, skipped, warning
from pyspark_pykafka.doctor.permissions import Needs, check_permissions
from pyspark_pykafka.engines.librdkafka.inspection import ClusterInspection
from pyspark_pykafka.engines.selection import (
    broker_versions,
    metadata_backend,
    wire_read_unavailable_reason,
    wire_write_unavailable_reason,
)
from pyspark_pykafka.errors import (
    AuthenticationError,
    AuthorizationError,
    OptionsError,
    PykafkaError,
    TlsError,
)
from pyspark_pykafka.settings.librdkafka_config import transaction_timeout_ms
from pyspark_pykafka.timestamps import format_timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark_pykafka.engines.librdkafka.inspection import ClusterDescription
    from pyspark_pykafka.settings import KafkaSettings

_FETCH_API_KEY = 1
#: The highest Fetch version of each release. Releases older than the last row are not supported.
_RELEASES = (
    (18, "4.1 or newer"),
    (17, "3.9 or 4.0"),
    (16, "3.7 or 3.8"),
    (15, "3.5 or 3.6"),
    (13, "3.1 to 3.4"),
    (12, "2.7 to 3.0"),
    (11, "2.4 to 2.6"),
)
_MAX_CLOCK_SECONDS = 60
_DAY_MS = 86_400_000
_INTERNAL_TOPICS = (
    ("offsets.topic.replication.factor", "consumer groups cannot record progress"),
    ("transaction.state.log.replication.factor", "exactly-once writes wait until they time out"),
)


class CheckInput(NamedTuple):
    """
    The settings to connect with, and the resources that a query needs.
    """

    kafka: KafkaSettings
    needs: Needs


def check_cluster(
    check_input: CheckInput, now: Callable[[], float] = time.time
) -> Iterator[Finding]:
    """
    Yield the findings. If the brokers cannot be reached, that is the only finding.
    """
    unreachable = _check_contact(check_input.kafka)
    if unreachable is not None:
        yield unreachable
        return
    yield from _check_engines(check_input.kafka)
    yield from _check_versions(check_input.kafka)
    inspection = ClusterInspection(check_input.kafka)
    try:
        cluster = inspection.describe_cluster()
    except PykafkaError as error:
        yield skipped("brokers", str(error), "allow Describe on the cluster to check more")
        return
    brokers = ", ".join(f"{id_} {host}" for id_, host in sorted(cluster.brokers.items()))
    yield ok("brokers", f"cluster {cluster.cluster_id}: {brokers}")
    yield from _check_settings(inspection, cluster, check_input)
    yield from check_permissions(inspection, cluster, check_input.kafka, check_input.needs)
    yield from _check_clocks(inspection, check_input.needs, now)


def _check_contact(kafka: KafkaSettings) -> Finding | None:
    try:
        metadata_backend(kafka, "read_uncommitted", "auto").describe_topics(())
    except (AuthenticationError, AuthorizationError) as error:
        return failed("login", str(error), "correct the kafka.sasl.* settings, or the permissions")
    except OptionsError as error:
        return failed("kafka settings", "; ".join(error.mistakes), "correct the setting")
    except TlsError as error:
        return failed("login", str(error), "correct kafka.security.protocol or kafka.ssl.*")
    except PykafkaError as error:
        advice = "correct kafka.bootstrap.servers, or open the network path to the brokers"
        return failed("brokers", str(error), advice)
    return None


def _check_engines(kafka: KafkaSettings) -> Iterator[Finding]:
    protocol = kafka.get("security.protocol", "PLAINTEXT").upper()
    yield ok("login", f"{protocol}: the brokers accept it")
    reasons = {wire_read_unavailable_reason(kafka), wire_write_unavailable_reason(kafka)} - {None}
    if reasons:
        text = f"the engine librdkafka is used: {'; '.join(sorted(filter(None, reasons)))}"
        yield warning("engine", text, "change this if you need speed or exactly-once writes")
    else:
        yield ok("engine", "wire, for reads and writes")


def _check_versions(kafka: KafkaSettings) -> Iterator[Finding]:
    ranges = broker_versions(kafka)
    if ranges is None:
        return
    max_version = ranges.get(_FETCH_API_KEY, (0, 0))[1]
    release = next((name for version, name in _RELEASES if max_version >= version), None)
    if release is None:
        text = f"the brokers support Fetch up to version {max_version} only"
        yield failed("broker version", text, "use Kafka 2.4 or newer")
    else:
        yield ok("broker version", f"Kafka {release}")


def _check_settings(
    inspection: ClusterInspection, cluster: ClusterDescription, check_input: CheckInput
) -> Iterator[Finding]:
    try:
        settings = inspection.broker_settings(min(cluster.brokers))
    except PykafkaError as error:
        advice = "allow DescribeConfigs on the cluster to check these"
        yield skipped("broker settings", str(error), advice)
        return
    yield check_transaction_timeout(settings, transaction_timeout_ms(check_input.kafka))
    yield check_id_expiration(settings)
    yield from check_internal_topics(settings, len(cluster.brokers))


def check_transaction_timeout(settings: Mapping[str, str], timeout_ms: int) -> Finding:
    """
    Check that the brokers allow the timeout of exactly-once writes.
    """
    allowed = int(settings.get("transaction.max.timeout.ms", timeout_ms))
    text = f"kafka.transaction.timeout.ms is {timeout_ms}, the brokers allow {allowed}"
    if timeout_ms <= allowed:
        return ok("transactions", text)
    return failed(
        "transactions",
        text,
        "lower kafka.transaction.timeout.ms, or raise the brokers' transaction.max.timeout.ms",
    )


def check_id_expiration(settings: Mapping[str, str]) -> Finding:
    """
    Check that the brokers keep the transactional ids of a stopped exactly-once stream for a day.
    """
    expiration_ms = int(settings.get("transactional.id.expiration.ms", 7 * _DAY_MS))
    text = f"unused transactional ids expire after {expiration_ms / _DAY_MS:g} days"
    if expiration_ms >= _DAY_MS:
        return ok("transactions", text)
    advice = "raise the brokers' transactional.id.expiration.ms above the longest pause of a query"
    return warning("transactions", text, advice)


def check_internal_topics(settings: Mapping[str, str], brokers: int) -> Iterator[Finding]:
    """
    Yield a finding for each internal topic: whether there are enough brokers for its replicas.
    """
    for name, effect in _INTERNAL_TOPICS:
        replicas = int(settings.get(name, 1))
        text = f"{name} is {replicas}, with {brokers} broker{'s' if brokers > 1 else ''}"
        yield (
            ok("replicas", text)
            if replicas <= brokers
            else failed("replicas", f"{text}: {effect}", f"start more brokers, or lower {name}")
        )


def _check_clocks(
    inspection: ClusterInspection, needs: Needs, now: Callable[[], float]
) -> Iterator[Finding]:
    for topic in needs.read:
        try:
            partitions = inspection.describe_topic(topic).partitions
            newest = inspection.newest_timestamp(topic, partitions)
        except PykafkaError:
            # The finding about the topic's permissions reports this.
            continue
        if newest is not None:
            yield check_clock(topic, newest, now())


def check_clock(topic: str, newest_ms: int, now: float) -> Finding:
    """
    Check that the newest record is not from the future. If it is, the clock of this machine or of
    a producer is wrong. ``now`` is in seconds.
    """
    timestamp = format_timestamp(newest_ms)
    ahead = newest_ms / 1000 - now
    if ahead <= _MAX_CLOCK_SECONDS:
        return ok("clock", f"the newest record of {topic} is from {timestamp}")
    return warning(
        "clock",
        f"the newest record of {topic} is from {timestamp}, {ahead:.0f} s later than this "
        "machine's clock",
        "correct the clock of this machine or of the producers: starts and ends by time depend on "
        "both",
    )
