"""
The errors for records that could not be written.
"""

from __future__ import annotations

import pytest

from pyspark_pykafka.engines.wire.producer.delivery_errors import invalid_record_error
from pyspark_pykafka.offsets import TopicPartition


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("Timestamp 5 is out of range", "the broker's message: Timestamp 5 is out of range"),
        (None, "the broker rejects it as invalid"),
        ("", "the broker rejects it as invalid"),
    ],
)
def test_a_message_is_quoted_only_if_the_broker_sent_one(reason: str | None, cause: str) -> None:
    """
    The error for an invalid record quotes the broker's message, and invents none.
    """
    error = invalid_record_error(TopicPartition("t", 1), b"k", reason)

    assert str(error).endswith(f"partition 1 cannot be written; {cause}")
