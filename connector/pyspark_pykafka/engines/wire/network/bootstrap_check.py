"""
Finds out why a client cannot reach the brokers, by connecting to them; librdkafka hides the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.engines.error_mapping import no_response_error
from pyspark_pykafka.engines.wire.network.connection import Connection
from pyspark_pykafka.engines.wire.protocol.metadata import METADATA, metadata_request
from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings.wire_config import wire_config
from pyspark_pykafka.settings.wire_support import wire_unsupported_reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_pykafka.settings import KafkaSettings

#: The time for all bootstrap servers together; a silent one takes an equal share of it.
PROBE_SECONDS = 3.0


def bootstrap_error(kafka: KafkaSettings) -> PykafkaError | None:
    """
    Return why no bootstrap server accepts this client, or None if one does.

    An error that is not retriable is returned without trying the other servers. Returns None also
    if the wire engine does not support the settings.
    """
    if wire_unsupported_reason(kafka) is not None:
        # A probe without these settings would meet other errors than librdkafka does.
        return None
    config = wire_config(kafka)
    reasons: list[str] = []
    total = Deadline.after(PROBE_SECONDS)
    for number, address in enumerate(config.bootstrap):
        limit = total.within(total.remaining() / (len(config.bootstrap) - number))
        try:
            connection = Connection.open(address, config, limit)
            try:
                version = connection.version(METADATA)
                request = metadata_request(version, (), allow_auto_topic_creation=False)
                connection.request(request, limit)
            finally:
                connection.close()
        except PykafkaError as failure:
            if not failure.retriable:
                return failure
            reasons.append(failure.without_advice())
        else:
            return None
    return no_response_error(reasons)


def bootstrap_versions(kafka: KafkaSettings) -> Mapping[int, tuple[int, int]] | None:
    """
    Return the API versions of the first bootstrap server that answers, or None if none does.
    """
    config = wire_config(kafka)
    for address in config.bootstrap:
        try:
            connection = Connection.open(address, config, Deadline.after(PROBE_SECONDS))
        except PykafkaError:
            continue
        try:
            return connection.api_versions
        finally:
            connection.close()
    return None
