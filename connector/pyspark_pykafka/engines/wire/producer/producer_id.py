"""
The producer id, by which brokers recognise a batch that is sent again (KIP-98).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.engines.error_mapping import map_error_code
from pyspark_pykafka.engines.wire.network.max_block import retry_within_max_block
from pyspark_pykafka.engines.wire.protocol.transactions import (
    INIT_PRODUCER_ID,
    init_producer_id_request,
)
from pyspark_pykafka.engines.wire.records.record_batch import ProducerIdAndEpoch
from pyspark_pykafka.errors import PykafkaError

if TYPE_CHECKING:
    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.retry import Deadline
    from pyspark_pykafka.settings.wire_config import ProducerConfig

# InitProducerId without a transactional id ignores the transaction timeout.
_NO_TIMEOUT_MS = 2**31 - 1

_ACTION = "requesting a producer id"


def request_producer_id(cluster: Cluster, config: ProducerConfig) -> ProducerIdAndEpoch:
    """
    Return a new producer id, without a transactional id.

    Retries for ``kafka.max.block.ms``. Raises the errors of :mod:`pyspark_pykafka.errors`.
    """

    def request(deadline: Deadline) -> ProducerIdAndEpoch:
        return _init_producer_id(cluster, deadline)

    return retry_within_max_block(
        *(request, config, config.wire.retry_backoff_seconds, f"{_ACTION}: not done"),
        now=cluster.now,
        sleep=cluster.sleep,
    )


def _init_producer_id(cluster: Cluster, deadline: Deadline) -> ProducerIdAndEpoch:
    connection = cluster.any_connection(deadline)
    version = connection.version(INIT_PRODUCER_ID)
    request = init_producer_id_request(version, None, _NO_TIMEOUT_MS)
    try:
        response = cluster.request(connection, request, deadline)
        if response.error_code:
            # KIP-679
            permission = "IdempotentWrite on the cluster, or Write on any topic"
            raise map_error_code(response.error_code, _ACTION, permission)
    except PykafkaError:
        # A broker that is cut off from its controllers may have no producer ids left, so the next
        # attempt asks another broker.
        cluster.demote(connection.address)
        raise
    return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
