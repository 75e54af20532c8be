"""
Where the logs end that a stream reads, as far as its options let it go.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from pyspark_pykafka.engines.log_truncation import older_epochs
from pyspark_pykafka.errors import BrokerUnavailableError, OffsetsError
from pyspark_pykafka.offsets import (
    LATEST,
    Assignment,
    LogEnds,
    Offsets,
    StreamOffset,
    TopicPartition,
    format_partitions,
)
from pyspark_pykafka.options import Latest, SpecificOffsets, SpecificTimestamps
from pyspark_pykafka.source.data_loss import OffsetLookup
from pyspark_pykafka.source.offset_limits import resolve_end
from pyspark_pykafka.source.subscription import matches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark_pykafka.options import SourceOptions, Strategy


class PartitionLookup(OffsetLookup, Protocol):
    """
    Whoever knows which partitions there are, too; :class:`MetadataClient` does.
    """

    def assignment(self, strategy: Strategy) -> Assignment:
        """
        Return the existing partitions that a strategy selects.
        """

    def log_ends(self, tps: Iterable[TopicPartition]) -> LogEnds:
        """
        Return what ``latest`` does, with the leader epochs in which the logs end there.
        """


@dataclass(frozen=True, slots=True)
class EndOffsets:
    """
    Asks the brokers for the ends of all partitions that the options select.
    """

    options: SourceOptions
    brokers: PartitionLookup
    sleep: Callable[[float], None] = time.sleep

    def latest(self, stands: StreamOffset) -> StreamOffset:
        """
        Ask for the latest offsets, again if some lie before known ones (KAFKA-7703).

        The same where partitions are gone, or of other topics: that is believed at last only.
        """
        policy = self.options.fetch_offset_retry
        for _ in range(policy.attempts - 1):
            try:
                return self._latest_beyond(stands)
            except (_StaleOffsetsError, _BehindError):
                # Any other error has been tried again already.
                self.sleep(policy.interval_seconds)
        try:
            return self._latest_beyond(stands)
        except _StaleOffsetsError as stale:
            return stale.latest

    def _latest_beyond(self, stands: StreamOffset) -> StreamOffset:
        assigned = self.brokers.assignment(self.options.strategy)
        offsets, epochs = self.brokers.log_ends(assigned.partitions)
        latest = StreamOffset(offsets, assigned.topic_ids, epochs=epochs)
        behind = older_epochs(stands, latest)
        if behind:
            raise _behind(behind, stands, latest)
        remade = latest.recreated_topics(stands)
        for tp, offset in stands.offsets.items():
            is_older = latest.offsets.get(tp, offset) < offset
            # Told by a broker that knows no better, perhaps: the next to be asked is another one.
            is_missing = tp not in latest.offsets and matches(self.options.strategy, tp)
            if is_older or is_missing or tp.topic in remade:
                raise _StaleOffsetsError(latest)
        return latest

    def limit_to_options(self, stands: StreamOffset, latest: StreamOffset) -> StreamOffset:
        """
        Cut off what lies beyond the end that the options give the stream.
        """
        ending = self.options.ending_offsets
        if isinstance(ending, Latest):
            return latest
        tps = sorted(latest.offsets)
        if isinstance(ending, SpecificOffsets | SpecificTimestamps):
            # Of partitions that appear later nothing is said, so nothing is read.
            named = _named(ending)
            tps = [tp for tp in tps if tp in named or tp.topic in named or tp in stands.offsets]
        border = resolve_end(ending, tps, self.brokers)
        ends = {
            tp: latest.offsets[tp] if end == LATEST else min(latest.offsets[tp], end)
            for tp, end in border.items()
        }
        # An end that lies behind where the query stands already is no reason to go back.
        ends = {tp: max(end, stands.offsets.get(tp, end)) for tp, end in ends.items()}
        return replace(latest, offsets=ends)

    def check_end_exists(self, until: StreamOffset) -> None:
        """
        Refuse to end a run at offsets that were there when it began and are not any more.

        As the JVM connector with AvailableNow, whatever failOnDataLoss says: the run could
        never reach its end.
        """
        latest = self.brokers.end_offsets(sorted(until.offsets))
        lost = until.offsets.keys() - latest.keys()
        if lost:
            msg = (
                f"partitions that the run was to read are gone: {format_partitions(lost)}; "
                f"latest offsets are {_text(latest)}, the end was {_text(until.offsets)}. "
                "Start the query again"
            )
            raise OffsetsError("LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW", msg)
        behind = [tp for tp, end in until.offsets.items() if end > latest[tp]]
        if behind:
            msg = (
                f"{format_partitions(behind)}: the available offset is less than the end offset "
                f"that was there when the run began; latest offsets are {_text(latest)}, "
                f"the end was {_text(until.offsets)}. Was the topic deleted and made again? "
                "Start the query again"
            )
            raise OffsetsError(
                "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_"
                "TRIGGER_AVAILABLENOW",
                msg,
            )


class _StaleOffsetsError(BrokerUnavailableError):
    """
    The brokers gave offsets older than some they gave before; the last answer is inside.
    """

    def __init__(self, latest: StreamOffset) -> None:
        self.latest = latest
        super().__init__("the latest offsets lie before known ones")


class _BehindError(BrokerUnavailableError):
    """
    A broker gave an older leader epoch than others gave before.
    """


def _behind(tps: list[TopicPartition], stands: StreamOffset, latest: StreamOffset) -> _BehindError:
    tp = min(tps)
    msg = (
        f"{format_partitions(tps)}: a broker that is behind the others told the latest offsets; "
        f"the leader epoch of {tp} was {stands.epochs[tp]}, and is {latest.epochs[tp]} there. "
        "Is it cut off from the controllers?"
    )
    return _BehindError(msg)


def _named(ending: SpecificOffsets | SpecificTimestamps) -> set[TopicPartition | str]:
    if isinstance(ending, SpecificTimestamps):
        return {tp for tp, _ in ending.timestamps}
    return {*dict(ending.offsets), *dict(ending.topics)}


def _text(offsets: Offsets) -> str:
    shown = ", ".join(f"{tp}: {offset}" for tp, offset in sorted(offsets.items())[:20])
    return f"{{{shown}{', ...' if len(offsets) > 20 else ''}}}"
