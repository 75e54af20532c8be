"""
What happens to records whose key or value cannot be decoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.errors import RecordError

if TYPE_CHECKING:
    from pyspark_pykafka.offsets import TopicPartition
    from pyspark_pykafka.options.format_values import OnBadRecord

#: The columns of records that a dead letter needs, besides the offset.
DEAD_LETTER_COLUMNS = ("key", "value", "timestamp", "headers")

#: The condition of a record that cannot be decoded.
UNDECODABLE = "KAFKA_UNDECODABLE_RECORD"


def describe_bad_record(tp: TopicPartition, offset: int, reason: str) -> str:
    """
    Return where a bad record is and what is wrong with it.
    """
    return f"cannot decode the record of {tp} at offset {offset}: {reason}"


class BadValue(NamedTuple):
    """
    A key or value that cannot be decoded: its row, and what is wrong, without its content.
    """

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class BadRecordPolicy:
    """
    What to do with bad records, and how many of them a task may read; None is any number.
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
        Raise :class:`RecordError` if the policy does not allow a task's ``count``-th bad record.
        """
        where = describe_bad_record(tp, offset, reason)
        if self.fails:
            msg = (
                f"{where}. Correct the schema, or set onBadRecord to null, rescue or deadletter to "
                "go on with such records"
            )
            raise RecordError(UNDECODABLE, msg)
        if self.max_bad_records is not None and count > self.max_bad_records:
            msg = (
                f"{where}. This task has read more than maxBadRecords, {self.max_bad_records}, of "
                "such records; correct the schema, or raise the limit"
            )
            raise RecordError("KAFKA_TOO_MANY_BAD_RECORDS", msg)


#: The policy of a read that sets no other.
FAIL = BadRecordPolicy()
