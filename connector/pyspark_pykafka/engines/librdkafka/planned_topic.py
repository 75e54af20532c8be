"""
Checks whether a name still belongs to the topic for which a read was planned.

librdkafka's consumer does not report the topic id (KIP-516) of its records, so the current id is
read from metadata, as on the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.engines.client_pool import ClientPool
from pyspark_pykafka.engines.contract import RecreatedTopicError
from pyspark_pykafka.retry import Backoff, Deadline, retry_until
from pyspark_pykafka.settings.wire_support import wire_unsupported_reason

if TYPE_CHECKING:
    from pyspark_pykafka.engines.contract import FetchSettings
    from pyspark_pykafka.engines.librdkafka.metadata import AdminMetadata
    from pyspark_pykafka.engines.metadata_contract import MetadataBackend
    from pyspark_pykafka.offsets import OffsetRange

_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.1, 1.0


def is_planned_topic(requested: OffsetRange, settings: FetchSettings) -> bool:
    """
    Return whether the range's topic has not been deleted and recreated.

    A broker with stale metadata may return the id of a former topic. So an id that differs is
    requested again until ``poll_timeout_ms`` has passed. Raises the errors of
    :mod:`pyspark_pykafka.errors`.
    """
    deadline = Deadline.after(settings.poll_timeout_ms / 1000)
    backoff = Backoff(_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)
    try:
        retry_until(lambda: _check_topic(requested, settings), deadline, backoff)
    except RecreatedTopicError:
        return False
    return True


def _check_topic(requested: OffsetRange, settings: FetchSettings) -> None:
    if wire_unsupported_reason(settings.kafka) is None:
        # Imported here, since other reads do not need the other engine's connections.
        from pyspark_pykafka.engines.wire.consumer.metadata import WireMetadata

        # Invariant R18 (no single broker).
        _compare_ids(requested, WireMetadata(settings.kafka, settings.isolation_level))
        return
    with _pool.borrow(settings.kafka, lambda: _admin_metadata(settings)) as backend:
        _compare_ids(requested, backend)


def _compare_ids(requested: OffsetRange, backend: MetadataBackend) -> None:
    topic = requested.tp.topic
    current = backend.describe_topics([topic]).get(topic)
    # The reader reports a topic that does not exist, and brokers before 2.8 have no ids.
    if current is not None and current.id not in {None, requested.topic_id}:
        msg = f"the topic {topic} was deleted and recreated: its id is {current.id} now"
        raise RecreatedTopicError(msg)


def _admin_metadata(settings: FetchSettings) -> AdminMetadata:
    from pyspark_pykafka.engines.librdkafka.metadata import AdminMetadata

    return AdminMetadata(settings.kafka, settings.isolation_level)


def _forget(_client: AdminMetadata) -> None:
    """
    Leave the client to the garbage collector, which closes it: a metadata client has no ``close``.
    """


_pool: ClientPool[AdminMetadata] = ClientPool(_forget)
