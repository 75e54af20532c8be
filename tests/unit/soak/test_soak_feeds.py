"""
The outcome of an input topic's records, from its producers' reports and the topic's content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from tests.soak.feeds import Feed
from tests.soak.truth import SourceRecord

from pyspark_pykafka.verify.checker import ABORTED, COMMITTED, UNKNOWN, Verdict
from pyspark_pykafka.verify.records import WrittenRecords, encode

if TYPE_CHECKING:
    from pyspark_pykafka.testing import KafkaCluster
    from pyspark_pykafka.verify.writer import Writer

LABEL = "a0"


class FinishedWriter:
    """
    A producer that has written one record.
    """

    def __init__(self, state: str) -> None:
        self.written = WrittenRecords("topic", 1)
        self.written.add(0, [(0, encode(LABEL, 0, 0))], state)


def outcome(
    state: str, *, is_there: bool, risky: bool = False, gone: bool = False
) -> tuple[str, bool]:
    """
    Return the feed's verdict on the record, and whether the brokers have lost it.
    """
    feed = Feed(cast("KafkaCluster", None), "topic", "a", 1.0)
    feed._writers[LABEL] = cast("Writer", FinishedWriter(state))
    feed.risky |= {LABEL} if risky else set()
    feed.gone |= {LABEL} if gone else set()
    brokers = Verdict()
    records = [SourceRecord(0, 0, 0, encode(LABEL, 0, 0))] if is_there else []
    (record,) = feed.truth(records, brokers)[LABEL, 0]
    return record.state, not brokers.is_clean


@pytest.mark.parametrize(
    ("state", "is_there", "result", "is_lost"),
    [
        (COMMITTED, True, COMMITTED, False),
        (COMMITTED, False, UNKNOWN, True),
        (UNKNOWN, True, COMMITTED, False),
        (UNKNOWN, False, ABORTED, False),
        (ABORTED, False, ABORTED, False),
    ],
)
def test_topic_decides_unknown_outcomes(
    state: str, is_there: bool, result: str, is_lost: bool
) -> None:
    """
    The topic decides a commit without a response; a missing acknowledged record is lost.
    """
    assert outcome(state, is_there=is_there) == (result, is_lost)


def test_records_of_a_deleted_topic_are_still_expected() -> None:
    """
    Records that were read before their topic was deleted must be in the output, although the new
    topic does not have them.
    """
    assert outcome(COMMITTED, is_there=False, gone=True) == (COMMITTED, False)


def test_records_on_a_replica_that_lost_the_election_may_be_missing() -> None:
    """
    Records on a replica that lost the election may be missing in the output.
    """
    assert outcome(COMMITTED, is_there=False, risky=True) == (UNKNOWN, False)
