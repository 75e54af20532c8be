"""
How long the driver waits for brokers: less until one of them has answered in this process.

Brokers that never answered are probably at another address; those that have answered will come
back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.settings.librdkafka_config import api_timeout_ms, max_block_ms

if TYPE_CHECKING:
    from pyspark_pykafka.settings import KafkaSettings

#: The wait for a first answer, unless the user sets a timeout.
FIRST_CONTACT_MS = 10_000

_SERVERS = "bootstrap.servers"
_reached: set[str] = set()


def record_contact(kafka: KafkaSettings) -> None:
    """
    Record that a broker of these settings has answered.
    """
    _reached.add(kafka.get(_SERVERS, ""))


def is_reached(kafka: KafkaSettings) -> bool:
    """
    Return whether a broker of these settings has answered.
    """
    return kafka.get(_SERVERS, "") in _reached


def request_seconds(kafka: KafkaSettings) -> float:
    """
    Return the time limit of the driver's next metadata request, retries included.
    """
    return _limit_ms(kafka, "default.api.timeout.ms", api_timeout_ms(kafka)) / 1000


def block_seconds(kafka: KafkaSettings) -> float:
    """
    Return how long the driver of a write waits for brokers.
    """
    return _limit_ms(kafka, "max.block.ms", max_block_ms(kafka)) / 1000


def _limit_ms(kafka: KafkaSettings, name: str, limit_ms: int) -> int:
    if is_reached(kafka) or kafka.get(name) is not None:
        return limit_ms
    return min(limit_ms, FIRST_CONTACT_MS)
