"""
The policy for records whose key or value cannot be decoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.errors import RecordError

if TYPE_CHECKING:
    from pyspark_pykafka.offsets import TopicPartition
    from pyspark_pykafka.options.format_values import OnBadRecord

#: The record columns that a dead letter needs, besides the offset.
DEAD_LETTER_COLUMNS = ("key", "value", "timestamp", "headers")

#: The condition of a record that cannot be decoded.
UNDECODABLE = "KAFKA_UNDECODABLE_RECORD"


def describe_bad_record(tp: TopicPartition, offset: int, reason: str) -> str:
    """
    Return a bad record's position and the reason, for a message.
    """
    return f"cannot decode the record of {tp} at offset {offset}: {reason}"


class BadValue(NamedTuple):
    """
    A key or value that cannot be decoded: its row, and the reason, which does not show the content.
    """

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class BadRecordPolicy:
    """
    The action for bad records, and how many of them a range of offsets may have; None means no
    limit.
    """

    action: OnBadRecord = "fail"
    max_bad_records: int | None = None

    @property
    def fails(self) -> bool:
        """
        Whether the first bad record fails the read.
        """
        return self.action == "fail"

    def check(self, tp: TopicPartition, offset: int, reason: str, count: int) -> None:
        """
        Raise :class:`RecordError` if the policy does not allow a range's ``count``-th bad record.
        """
        where = describe_bad_record(tp, offset, reason)
        if self.fails:
            msg = (
                f"{where}. Correct the schema, or set onBadRecord to null, rescue or deadletter to "
                "continue with such records"
            )
            raise RecordError(UNDECODABLE, msg)
        if self.max_bad_records is not None and count > self.max_bad_records:
            msg = (
                f"{where}. This range of offsets has more bad records than maxBadRecords allows, "
                f"{self.max_bad_records}; correct the schema, or raise the limit"
            )
            raise RecordError("KAFKA_TOO_MANY_BAD_RECORDS", msg)


#: The default policy of a read.
FAIL = BadRecordPolicy()
