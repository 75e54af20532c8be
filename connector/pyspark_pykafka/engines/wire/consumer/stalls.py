"""
Why a broker may have answered without records, in the words of an error: pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_pykafka.engines.wire.consumer.partition_fetcher import FetchResult


def why_nothing(fetched: FetchResult, position: int) -> str:
    """
    Return what an answer without records for this position may come from, and what to do.
    """
    if fetched.redirected:
        return (
            f"broker {fetched.node} leads the partition and names broker {fetched.preferred} as "
            "the replica to read from, which has no records there; is that replica in sync? "
            "Without kafka.client.rack the leader is read"
        )
    if fetched.throttled:
        return (
            f"broker {fetched.node} holds records back for a quota (it asks to wait for "
            f"{fetched.throttle_ms} ms); raise the quota of this user or client id"
        )
    if not fetched.of_leader:
        return f"the replica on broker {fetched.node} has no records there; is it in sync?"
    # Invariant R9 (last stable offset): waited for, not skipped.
    if fetched.visible_end <= position:
        return (
            f"a transaction has been open since offset {fetched.visible_end} (last stable offset; "
            f"high watermark {fetched.high_watermark}), and hides what follows from readers of "
            "committed records; pykafka transactions list shows whose it is"
        )
    return (
        f"broker {fetched.node}, which leads the partition, answers without records below its high "
        f"watermark {fetched.high_watermark} (offsets up to {fetched.visible_end} may be read). Is "
        "the topic in tiered storage? Then the brokers' quota for remote reads may be used up "
        "(remote.log.manager.fetch.max.bytes.per.second), or remote storage be slower than "
        "remote.fetch.max.wait.ms. If the records at the end of the log were compacted away, "
        "one new record in the partition lets the read go on"
    )


def why_out_of_range(low: int, high: int) -> str:
    """
    Return what it may come from that a leader refuses an offset which lies within its watermarks.
    """
    return (
        "the leader says that the offset is out of range (OFFSET_OUT_OF_RANGE), and also that "
        f"the log has offsets from {low} up to its high watermark {high}; is it in sync, and the "
        "cluster at rest? Its own log says more"
    )
