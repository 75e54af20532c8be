"""
Detects log truncation after an unclean leader election (KIP-320). Pure: no I/O.

A truncated log can grow again under the same offsets. Its leader epochs show the difference: the
leader knows where the records of each earlier epoch end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_pykafka.offsets import NO_EPOCH, LeaderEpochs, Offsets, StreamOffset, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Named after the Java consumer's LogTruncationException; the JVM connector has no such condition.
LOG_TRUNCATED = "KAFKA_DATA_LOSS.LOG_TRUNCATED"


@dataclass(frozen=True, slots=True)
class Truncation:
    """
    A log that was seen up to ``offset`` in leader epoch ``epoch``; the epoch ends at ``end_offset``
    now.
    """

    tp: TopicPartition
    offset: int
    epoch: int
    end_offset: int

    @property
    def lost(self) -> int:
        """
        The number of offsets that were truncated.
        """
        return self.offset - self.end_offset

    def __str__(self) -> str:
        return (
            f"the log of {self.tp} was truncated: it was seen up to offset {self.offset} in leader "
            f"epoch {self.epoch}, which ends at offset {self.end_offset} now. The "
            f"{self.lost} offsets after that were lost, in an unclean leader election or with a "
            "broker's disk, and other records may have been written in their place"
        )


def epochs_to_check(start: StreamOffset, latest: StreamOffset) -> LeaderEpochs:
    """
    Return the leader epochs of ``start`` for the partitions whose leader epoch has grown since.

    A log is never truncated within a leader epoch, so no other partition needs a check. Nor is a
    check needed for a log that ends before its start offset, which has evidently lost records, or
    for a recreated topic, which has a new log.
    """
    # Invariant R16 (leader epoch).
    recreated = latest.recreated_topics(start)
    epochs = {}
    for tp, epoch in start.epochs.items():
        offset, end = start.offsets.get(tp), latest.offsets.get(tp)
        if offset is None or end is None or offset > end or tp.topic in recreated:
            continue
        if NO_EPOCH < epoch < latest.epochs.get(tp, NO_EPOCH):
            epochs[tp] = epoch
    return epochs


def find_truncations(
    start: StreamOffset, epochs: LeaderEpochs, end_offsets: Offsets
) -> list[Truncation]:
    """
    Return the truncated logs, given the end offset of each epoch; -1 means that it is unknown.
    """
    return [
        Truncation(tp, start.offsets[tp], epochs[tp], end)
        for tp, end in sorted(end_offsets.items())
        if 0 <= end < start.offsets[tp]
    ]


def partitions_with_older_epochs(start: StreamOffset, latest: StreamOffset) -> list[TopicPartition]:
    """
    Return the partitions whose leader epoch in ``latest`` is older than in ``start``.

    While a topic exists, its epochs only grow, so a broker that returned an older epoch has stale
    metadata. Topics without ids are left out: another topic may have the same name now.
    """
    # Invariant R17 (epochs grow).
    ids = start.topic_ids
    return [
        tp
        for tp, epoch in start.epochs.items()
        if NO_EPOCH < latest.epochs.get(tp, NO_EPOCH) < epoch
        and ids.get(tp.topic) is not None
        and ids[tp.topic] == latest.topic_ids.get(tp.topic)
    ]


def epochs_at(ends: Offsets, start: StreamOffset, latest: StreamOffset) -> LeaderEpochs:
    """
    Return the leader epoch in which each log was seen up to its end offset.

    If a range is empty because its start offset lies beyond the log's end, the epoch is that of
    ``start``.
    """
    return {
        tp: epoch
        for tp, end in ends.items()
        if (epoch := _epoch_at(tp, end, start, latest)) != NO_EPOCH
    }


def _epoch_at(tp: TopicPartition, end: int, start: StreamOffset, latest: StreamOffset) -> int:
    seen_in = latest if end <= latest.offsets.get(tp, -1) else start
    return seen_in.epochs.get(tp, NO_EPOCH)


def describe_truncations(truncations: Iterable[Truncation], limit: int = 20) -> str:
    """
    Return a list of at most ``limit`` truncations, for a message.
    """
    listed = list(truncations)
    rest = f"; and {len(listed) - limit} more partitions" if len(listed) > limit else ""
    return "; ".join(map(str, listed[:limit])) + rest
