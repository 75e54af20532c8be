"""
The likely causes of fetches without records, for error messages. Pure: no I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_pykafka.engines.contract import Watermarks
    from pyspark_pykafka.engines.wire.consumer.partition_fetcher import FetchResult


def explain_empty_fetch(fetched: FetchResult, position: int) -> str:
    """
    Return a likely cause of a response without records at this position, and what to do.
    """
    if fetched.is_redirect:
        return (
            f"broker {fetched.node} leads the partition and names broker "
            f"{fetched.preferred_replica} as the replica to read from, which has no records there; "
            "is that replica in sync? Without kafka.client.rack, tasks read from the leader"
        )
    if not fetched.from_leader:
        return f"the replica on broker {fetched.node} has no records there; is it in sync?"
    # Invariant R9 (last stable offset): the reader waits for the end of the transaction, and skips
    # no records.
    if fetched.visible_end <= position:
        return (
            f"a transaction has been open since offset {fetched.visible_end} (last stable offset; "
            f"high watermark {fetched.high_watermark}), and read_committed consumers cannot read "
            "beyond it; run pykafka transactions list to find its owner"
        )
    return (
        f"broker {fetched.node}, which leads the partition, returns no records below its high "
        f"watermark {fetched.high_watermark} (offsets up to {fetched.visible_end} are readable). "
        "Is the topic in tiered storage? Then the brokers' quota for remote reads may be used up "
        "(remote.log.manager.fetch.max.bytes.per.second), or remote storage may be slower than "
        "remote.fetch.max.wait.ms. If the records at the end of the log were compacted away, "
        "one new record in the partition lets the read continue"
    )


def explain_out_of_range(watermarks: Watermarks) -> str:
    """
    Return a likely cause of OFFSET_OUT_OF_RANGE for an offset between the leader's watermarks.
    """
    return (
        "the leader returns OFFSET_OUT_OF_RANGE, although it says that the log has offsets from "
        f"{watermarks.log_start} up to its high watermark {watermarks.visible_end}; is a "
        "reassignment or a leader election in progress? See the broker's own log"
    )
