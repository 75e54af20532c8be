"""
The values of transactional writes that the sink exchanges with the wire engine.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

#: The suffix of a ledger's topic, which follows the transactional-id prefix.
LEDGER_SUFFIX = "-ledger"


def never_stopped() -> None:
    """
    Do nothing: the write is never stopped before its end.
    """


class FallbackId(NamedTuple):
    """
    The transactional id that a task attempt uses if its own id is in use.

    ``notice_id`` is registered first: the driver cannot derive the fallback id, but can look up the
    notice id.
    """

    transactional_id: str
    notice_id: str


class TransactionalIdPattern(NamedTuple):
    """
    The transactional ids that consist of ``prefix`` and a match of ``suffix_pattern``.
    """

    prefix: str
    suffix_pattern: str

    def matches(self, transactional_id: str) -> bool:
        """
        Return whether the whole id matches the pattern.
        """
        if not transactional_id.startswith(self.prefix):
            return False
        return bool(re.fullmatch(self.suffix_pattern, transactional_id[len(self.prefix) :]))


class LedgerRecord(NamedTuple):
    """
    The record that a task adds to the ledger, a topic of one partition.

    ``make`` returns the record's key and value, given the number of the task's rows and their
    content hash.
    """

    topic: str
    make: Callable[[int, str], tuple[bytes, bytes]]

    @property
    def tp(self) -> TopicPartition:
        """
        The partition of the ledger.
        """
        return TopicPartition(self.topic, 0)


class PreparedTransaction(NamedTuple):
    """
    A transaction that holds all of its records and is ready to be committed.
    """

    transactional_id: str
    producer_id: int
    epoch: int


class TaskWriteResult(NamedTuple):
    """
    The result of a task's write of ``records`` rows: ``prepared`` is the task's open transaction,
    or None if there were no rows.

    ``ledger_offset`` is the offset of the ledger record, or -1 without one; ``content_hash`` is the
    hash of the task's rows, which the ledger record contains.
    """

    records: int
    prepared: PreparedTransaction | None
    ledger_offset: int
    content_hash: str = ""


class TransactionSpec(NamedTuple):
    """
    The transaction to write into; the coordinator aborts it after ``timeout_ms``.

    An open transaction with this id is aborted, unless there is a ``fallback``: then the fallback
    id is used instead. All transactions of a write share ``fence_id``: if the brokers know it, the
    write has ended, and the task aborts its transaction. ``check_not_stopped`` is called while the
    write waits for acknowledgements and at its end, and raises an error once the task is stopped.
    """

    transactional_id: str
    timeout_ms: int
    fallback: FallbackId | None = None
    ledger_record: LedgerRecord | None = None
    fence_id: str | None = None
    check_not_stopped: Callable[[], None] = never_stopped
