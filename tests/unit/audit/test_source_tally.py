"""
Whether the entered records can be computed from offsets depends on the source options.
"""

from __future__ import annotations

import pytest

from pyspark_pykafka.audit.source_tally import SourceTally
from pyspark_pykafka.errors import OptionsError

TOPIC = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
JSON = {"valueFormat": "json", "valueSchema": "id BIGINT"}
DEBEZIUM = {"valueFormat": "debezium-json", "valueSchema": "id BIGINT"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {**JSON, "onBadRecord": "deadletter", "deadLetterTopic": "dead"},
            "onBadRecord is 'deadletter', but .* make the auditor without options",
        ),
        (DEBEZIUM, "debeziumTombstones is 'drop', but .* set it to keep"),
    ],
)
def test_records_without_a_row_are_rejected(options: dict[str, str], text: str) -> None:
    """
    Options that drop records on purpose are rejected: offsets do not show which records those are.
    """
    with pytest.raises(OptionsError, match=text):
        SourceTally({**TOPIC, **options}, [])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {**JSON, "onBadRecord": "null"},
        {**JSON, "onBadRecord": "rescue"},
        {**DEBEZIUM, "debeziumTombstones": "keep"},
    ],
)
def test_records_with_a_row_are_accepted(options: dict[str, str]) -> None:
    """
    Bad records that keep a row can be counted by offsets.
    """
    assert not SourceTally({**TOPIC, **options}, []).include_topic
