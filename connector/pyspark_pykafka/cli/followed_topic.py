"""
The position of `pykafka peek --follow` in a topic that may get partitions, or be created again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.engines.metadata import MetadataClient
    from pyspark_pykafka.offsets import Offsets, TopicPartition


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
        self._is_missing = False
        self._id = topic_id

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
        before 2.8 have no topic ids; there a topic counts as recreated if it was missing before.
        """
        topic_id, tps = self._existing()
        if not tps:
            if not self._is_missing:
                self._on_event(self._missing_text(exists=topic_id is not None))
            self._is_missing = True
            return True
        is_other = topic_id != self._id if topic_id and self._id else self._is_missing
        if is_other:
            self._on_event(
                f"the topic {self._name} was deleted and recreated; continuing at its beginning"
            )
            self.positions = {}
        self._id, self._is_missing = topic_id, False
        new = [tp for tp in tps if tp not in self.positions]
        self.positions |= self._client.log_start_offsets(new)
        return is_other

    def ends(self) -> Offsets:
        """
        Return the current ends of the followed partitions; none while the topic is missing.
        """
        return {} if self._is_missing else self._client.end_offsets(self.positions)

    def _missing_text(self, *, exists: bool) -> str:
        if exists:
            return (
                f"the topic {self._name} was recreated without partition {self._partition}; "
                "waiting until it has that partition"
            )
        return f"the topic {self._name} was deleted; waiting until it exists again"

    def _existing(self) -> tuple[str | None, list[TopicPartition]]:
        existing = self._client.existing([self._name])
        tps = [tp for tp in existing.partitions if self._partition in (None, tp.partition)]
        return existing.topic_ids.get(self._name), tps
