"""
Whether a log was truncated since a stream saw it, and grew again under the same offsets (KIP-320).

A leader epoch tells such a log from one that only grew: a partition's leader knows where the
records of each earlier epoch end. Nothing here does I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_pykafka.offsets import NO_EPOCH, LeaderEpochs, Offsets, StreamOffset, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

#: As the Java consumer's LogTruncationException; the JVM connector has no name for it.
LOG_TRUNCATED = "KAFKA_DATA_LOSS.LOG_TRUNCATED"


@dataclass(frozen=True, slots=True)
class Truncation:
    """
    A log that was seen up to an offset in a leader epoch, and whose records of it end before that.
    """

    tp: TopicPartition
    seen: int
    epoch: int
    end: int

    @property
    def lost(self) -> int:
        """
        How many offsets were taken away.
        """
        return self.seen - self.end

    def __str__(self) -> str:
        return (
            f"the log of {self.tp} was truncated: it was seen up to offset {self.seen} in leader "
            f"epoch {self.epoch}, whose records end at offset {self.end} now. The {self.lost} "
            "offsets from there on were lost, in an unclean leader election or with a broker's "
            "disk, and other records may have taken their places"
        )


def epochs_to_check(stands: StreamOffset, latest: StreamOffset) -> LeaderEpochs:
    """
    Return the epochs in which partitions were seen that another leader epoch serves by now.

    Nobody truncates a log within a leader epoch, so all others are what they were. A log that ends
    before what was seen shows that by itself, and a topic made again is another one.
    """
    remade = latest.recreated_topics(stands)
    found = {}
    for tp, epoch in stands.epochs.items():
        at, end = stands.offsets.get(tp), latest.offsets.get(tp)
        if at is None or end is None or at > end or tp.topic in remade:
            continue
        if NO_EPOCH < epoch < latest.epochs.get(tp, NO_EPOCH):
            found[tp] = epoch
    return found


def truncations(stands: StreamOffset, epochs: LeaderEpochs, ends: Offsets) -> list[Truncation]:
    """
    Judge the ends of the epochs that were asked for; a negative one says that nobody knows it.
    """
    return [
        Truncation(tp, stands.offsets[tp], epochs[tp], end)
        for tp, end in sorted(ends.items())
        if 0 <= end < stands.offsets[tp]
    ]


def older_epochs(stands: StreamOffset, latest: StreamOffset) -> list[TopicPartition]:
    """
    Return the partitions of which an older leader epoch was told than one that was seen.

    Epochs only grow as long as a topic exists, so whoever told it is behind. Where brokers have no
    topic ids, it may be another topic of the same name as well.
    """
    ids = stands.topic_ids
    return [
        tp
        for tp, epoch in stands.epochs.items()
        if NO_EPOCH < latest.epochs.get(tp, NO_EPOCH) < epoch
        and ids.get(tp.topic) is not None
        and ids[tp.topic] == latest.topic_ids.get(tp.topic)
    ]


def epochs_at(ends: Offsets, stands: StreamOffset, latest: StreamOffset) -> LeaderEpochs:
    """
    Return the epoch in which each log was seen up to these ends.

    An end that the options keep where the stream stands, beyond that of the log, was seen earlier.
    """
    return {
        tp: epoch
        for tp, end in ends.items()
        if (epoch := _epoch_at(tp, end, stands, latest)) != NO_EPOCH
    }


def _epoch_at(tp: TopicPartition, end: int, stands: StreamOffset, latest: StreamOffset) -> int:
    seen = latest if end <= latest.offsets.get(tp, NO_EPOCH) else stands
    return seen.epochs.get(tp, NO_EPOCH)


def describe_truncations(found: Iterable[Truncation], limit: int = 20) -> str:
    """
    Name what was lost, for a message; at most ``limit`` are spelled out.
    """
    listed = list(found)
    rest = f"; and {len(listed) - limit} more partitions" if len(listed) > limit else ""
    return "; ".join(map(str, listed[:limit])) + rest
