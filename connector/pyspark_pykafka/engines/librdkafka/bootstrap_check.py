"""
Finds out why librdkafka reaches no broker: it retries every error, and reports only a timeout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.engines import first_contact

if TYPE_CHECKING:
    from pyspark_pykafka.errors import PykafkaError
    from pyspark_pykafka.settings import KafkaSettings


def bootstrap_error(kafka: KafkaSettings) -> PykafkaError | None:
    """
    Return the error of connecting to the brokers, or None if that works or a broker of ``kafka``
    has answered before in this process.
    """
    if first_contact.has_contact(kafka):
        return None
    # Imported here, since only this error needs the other engine's connections.
    from pyspark_pykafka.engines.wire.network import bootstrap_check

    return bootstrap_check.bootstrap_error(kafka)
