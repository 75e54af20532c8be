"""
Confirms the watermarks of a log with two brokers: librdkafka trusts the first that it reaches.

A broker that is cut off from its controllers returns former leaders, whose logs have stopped
growing. So the metadata is read from two brokers, over the wire engine's connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.contract import Watermarks
from pyspark_pykafka.offsets import EARLIEST
from pyspark_pykafka.settings.wire_support import wire_unsupported_reason

if TYPE_CHECKING:
    from pyspark_pykafka.offsets import TopicPartition
    from pyspark_pykafka.settings import KafkaSettings


class ConfirmedWatermarks(NamedTuple):
    """
    The watermarks of a log, and the address of the leader that returned them.
    """

    watermarks: Watermarks
    leader: str


def confirm_watermarks(
    kafka: KafkaSettings, tp: TopicPartition, isolation_level: str
) -> ConfirmedWatermarks | None:
    """
    Return the watermarks of a partition's log, from the leader that two brokers' metadata names.

    Returns None if the partition does not exist or has no leader, or if the wire engine does not
    support the settings. Raises the errors of :mod:`pyspark_pykafka.errors`.
    """
    if wire_unsupported_reason(kafka) is not None:
        return None
    # Imported here, since other reads do not need the other engine's connections.
    from pyspark_pykafka.engines.wire.consumer.metadata import WireMetadata

    # Invariant R18 (no single broker) also holds in a worker that has read the topic before.
    backend = WireMetadata(kafka, isolation_level, confirms_known_topics=True)
    leader = backend.leader_addresses([tp.topic]).get(tp)
    log_start = backend.list_offsets({tp: EARLIEST}).get(tp)
    log_end = backend.log_ends([tp]).offsets.get(tp)
    if leader is None or log_start is None or log_end is None:
        return None
    host, port = leader
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return ConfirmedWatermarks(Watermarks(log_start, log_end), address)


def read_high_watermark(kafka: KafkaSettings, tp: TopicPartition) -> int:
    """
    Return the high watermark of a partition's log, or -1 if the partition does not exist.

    If the wire engine does not support the settings, librdkafka's metadata is used.
    """
    isolation_level = "read_uncommitted"
    confirmed = confirm_watermarks(kafka, tp, isolation_level)
    if confirmed is not None:
        return confirmed.watermarks.visible_end
    # Imported here, since other reads do not need an admin client.
    from pyspark_pykafka.engines.librdkafka.metadata import AdminMetadata

    return AdminMetadata(kafka, isolation_level).log_ends([tp]).offsets.get(tp, -1)
