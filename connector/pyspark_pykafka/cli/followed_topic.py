"""
The position of `pykafka peek --follow` in a topic that may get partitions, or be created again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.engines.metadata import MetadataClient
    from pyspark_pykafka.offsets import Offsets, TopicPartition

# A topic is missing if this many metadata responses in a row lack it; one response may be wrong.
_MISSING_RESPONSES = 2


class FollowedTopic:
    """
    The next offset of each followed partition of a topic: of one ``partition``, or of all.

    ``topic_id`` is the id of the topic to which the offsets belong.

    ``on_event`` is called with a line of text when the topic has been deleted or recreated.
    """

    def __init__(
        self,
        client: MetadataClient,
        name: str,
        topic_id: str | None,
        starts: Offsets,
        *,
        partition: int | None,
        on_event: Callable[[str], None],
    ) -> None:
        self.positions = dict(starts)
        self._client = client
        self._name = name
        self._partition = partition
        self._on_event = on_event
        # The number of responses in a row without a followed partition.
        self._absences = 0
        self.topic_id = topic_id

    def record_shown(self, tp: TopicPartition, offset: int) -> None:
        """
        Continue after a record that has been shown, even if the read of its range fails.
        """
        self.positions[tp] = offset + 1

    def advance(self, ends: Offsets) -> None:
        """
        Continue at the ends up to which the partitions have been read.
        """
        self.positions = {
            tp: max(position, ends.get(tp, position)) for tp, position in self.positions.items()
        }

    def refresh(self) -> bool:
        """
        Add new partitions, and return whether the topic was recreated or is missing.

        A recreated topic is read from its beginning: none of its records has been shown. Brokers
        before 2.8 have no topic ids. There, a topic counts as recreated if several responses in a
        row lacked it. If one response lacked it, the topic counts as recreated only if a partition
        is missing, or ends before the next offset to show.
        """
        topic_id, exists, tps = self._existing()
        if not tps:
            self._absences += 1
            if self._absences == _MISSING_RESPONSES:
                self._on_event(self._missing_text(topic_id, exists=exists))
            return True
        is_other = self._is_other(topic_id)
        if is_other:
            self._on_event(
                f"the topic {self._name} was deleted and recreated; continuing at its beginning"
            )
            self.positions = {}
        self.topic_id, self._absences = topic_id or self.topic_id, 0
        new = [tp for tp in tps if tp not in self.positions]
        self.positions |= self._client.log_start_offsets(new)
        return is_other

    def ends(self) -> Offsets:
        """
        Return the current ends of the followed partitions; none while the topic is missing.
        """
        return {} if self._absences else self._client.end_offsets(self.positions)

    def _is_other(self, topic_id: str | None) -> bool:
        if topic_id and self.topic_id:
            return topic_id != self.topic_id
        if 0 < self._absences < _MISSING_RESPONSES:
            ends = self._client.end_offsets(self.positions)
            # Several brokers have confirmed that a partition without an end does not exist.
            return any(ends.get(tp, -1) < start for tp, start in self.positions.items())
        return self._absences > 0

    def _missing_text(self, topic_id: str | None, *, exists: bool) -> str:
        if not exists:
            return f"the topic {self._name} was deleted; waiting until it exists again"
        if topic_id == self.topic_id:
            return (
                f"the topic {self._name} has no partition {self._partition} at present; "
                "waiting for it"
            )
        return (
            f"the topic {self._name} was recreated without partition {self._partition}; "
            "waiting until it has that partition"
        )

    def _existing(self) -> tuple[str | None, bool, list[TopicPartition]]:
        """
        Return the topic's id, whether it exists, and its partitions that are followed.
        """
        existing = self._client.existing([self._name])
        tps = [tp for tp in existing.partitions if self._partition in (None, tp.partition)]
        return existing.topic_ids.get(self._name), bool(existing.partitions), tps
