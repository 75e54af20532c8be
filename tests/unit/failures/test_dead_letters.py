"""
The options of dead-letter topics.
"""

from __future__ import annotations

import pytest

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.failures.dead_letters import DeadLetterTopic

BROKERS = {"kafka.bootstrap.servers": "b:1"}


@pytest.mark.parametrize(
    "options", [BROKERS, {**BROKERS, "subscribe": "t"}, {**BROKERS, "Assign": '{"t": [0]}'}]
)
def test_the_brokers_are_enough(options: dict[str, str]) -> None:
    """
    The options need no topics to read, but may name them.
    """
    dead_letters = DeadLetterTopic("t.dead", options)

    assert dead_letters._sink.topic == "t.dead"
    for settings in (dead_letters._source.kafka, dead_letters._sink.kafka):
        assert settings.get("bootstrap.servers") == "b:1"


def test_mistakes_are_still_reported() -> None:
    """
    The brokers are required, and an unknown option is an error.
    """
    with pytest.raises(OptionsError, match=r"'topics' is not(.|\n)*servers is missing"):
        DeadLetterTopic("t.dead", {"topics": "t"})
