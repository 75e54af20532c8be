"""
A commit of progress that the group's coordinator does not answer; the brokers are simulated.
"""

from __future__ import annotations

import time

import pytest
from tests.support.served_kafka import SilentAccess

from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.progress.factory import make_progress_store
from pyspark_pykafka.progress.record import Owner, ProgressRecord
from pyspark_pykafka.progress.store import NoResponseError

OFFSET_COMMIT = 8
TIMEOUT_SECONDS = 2


def test_an_unanswered_commit_does_not_delay_the_end_of_the_claim() -> None:
    """
    After a commit without a response the store is closed at once, and can be claimed again.
    """
    with SilentAccess() as cluster:
        cluster.create_topic("t")
        timeouts = ("default.api.timeout.ms", "request.timeout.ms")
        options = {
            **{f"kafka.{name}": str(TIMEOUT_SECONDS * 1000) for name in timeouts},
            "kafka.bootstrap.servers": cluster.bootstrap,
            "kafka.group.id": "g",
            "progressStore": "consumerGroup",
            "subscribe": "t",
        }
        store = make_progress_store(parse_stream_source(options))
        claim = store.claim(Owner("q", "run", 0), ["t"])
        records = {TopicPartition("t", 0): ProgressRecord(0, claim.owner)}
        cluster.silent_to = frozenset({OFFSET_COMMIT})
        with pytest.raises(NoResponseError, match="no response within 2.0 s"):
            store.write(records)

        started_at = time.monotonic()
        store.close()
        # librdkafka sends the commit again twice, and would wait for each response.
        assert time.monotonic() - started_at < TIMEOUT_SECONDS

        cluster.silent_to = frozenset()
        claim = store.claim(claim.owner, ["t"])
        store.write(records)
        assert store.read() == records
        store.close()
