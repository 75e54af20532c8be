"""
Delivery guarantees: how a task writes its rows, and how the driver commits or aborts them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from pyspark_pykafka.engines.selection import (
    check_transactions,
    produce,
    transaction_client,
    write_in_transaction,
)
from pyspark_pykafka.engines.transaction_contract import LedgerRecord, never_stopped
from pyspark_pykafka.errors import OptionsError, PykafkaError
from pyspark_pykafka.sink.ledger_entries import (
    Committable,
    CommittableBatch,
    Marker,
    ledger_topic,
    to_record,
)
from pyspark_pykafka.sink.transactional_ids import (
    fallback_id,
    fence_id,
    stream_task_transactional_id,
    task_transactional_id,
    write_pattern,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from pyspark_pykafka.engines.transaction_contract import PreparedTransaction, TaskWriteResult
    from pyspark_pykafka.options import SinkOptions

logger = logging.getLogger("pyspark_pykafka")


@dataclass(frozen=True, slots=True)
class SinkTask:
    """
    Identifies the writing task.

    ``query`` and ``batch`` are the streaming query's id and the micro-batch's id; ``""`` and -1 in
    a batch write. ``attempt`` numbers the attempts in one run of a stage; ``attempt_id`` is unique.
    ``check_not_stopped`` raises an error once Spark has stopped the task.
    """

    partition: int
    attempt: int
    query: str
    batch: int
    attempt_id: int
    check_not_stopped: Callable[[], None] = field(default=never_stopped, compare=False)


@dataclass(frozen=True, slots=True)
class TaskCommitMessage:
    """
    A task's message to the driver; ``committable`` is its open transaction, or None without one.

    ``prefix``, ``query`` and ``write`` identify a streaming write for the writer object that
    commits it, because Spark creates another object for the tasks. A batch write has one object,
    and leaves these fields empty.
    """

    committable: Committable | None = None
    prefix: str = ""
    query: str = ""
    write: str = ""


class Delivery(Protocol):
    """
    How rows are delivered; pickled with the writer for the executors.
    """

    def write(self, batches: Iterable[pa.RecordBatch], task: SinkTask) -> TaskCommitMessage:
        """
        Write a task's rows; return once all of them are acknowledged.
        """

    def commit(self, messages: Sequence[TaskCommitMessage], tasks: int, batch: int) -> None:
        """
        Make all rows visible, after every task has succeeded; ``tasks`` is their number.
        """

    def abort(self, messages: Sequence[TaskCommitMessage], tasks: int) -> None:
        """
        Abort the write's transactions, if it has any, after a task or the commit has failed.

        ``messages`` are those of the tasks that have succeeded, out of ``tasks``.
        """


def make_delivery(options: SinkOptions, *, streaming: bool) -> Delivery:
    """
    Return the delivery for the option ``deliveryGuarantee``.

    Raises :class:`OptionsError` if it needs transactions that the settings do not allow, or if a
    stream would write into its own ledger.
    """
    if options.delivery_guarantee == "at-least-once":
        return AtLeastOnce(options)
    check_transactions(options.kafka)
    if not streaming:
        return ExactlyOnceBatch(options)
    _check_ledger_apart(options)
    return ExactlyOnceStream(options)


def _check_ledger_apart(options: SinkOptions) -> None:
    prefix = options.transactional_id_prefix
    if prefix is None or options.topic != ledger_topic(prefix):
        return
    msg = (
        f"topic is '{options.topic}', the ledger of transactionalIdPrefix '{prefix}', which "
        "records what is committed; give another topic, or another transactionalIdPrefix"
    )
    raise OptionsError((msg,))


class AtLeastOnce:
    """
    Rows are visible once acknowledged; a failed task or batch is written again.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, batches: Iterable[pa.RecordBatch], _: SinkTask) -> TaskCommitMessage:
        """
        Write a task's rows.
        """
        options = self._options
        produce(batches, options.kafka, options.topic, options.engine)
        return TaskCommitMessage()

    def commit(self, messages: Sequence[TaskCommitMessage], tasks: int, batch: int) -> None:
        """
        Do nothing: all rows are visible.
        """

    def abort(self, messages: Sequence[TaskCommitMessage], tasks: int) -> None:
        """
        Do nothing: visible rows stay visible.
        """


class ExactlyOnceBatch:
    """
    Each task attempt writes its own transaction; the driver commits one attempt of each task.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._prefix = options.transactional_id_prefix or f"pykafka-{uuid4().hex}"
        self._fence_id = fence_id(self._prefix, uuid4().hex)

    def write(self, batches: Iterable[pa.RecordBatch], task: SinkTask) -> TaskCommitMessage:
        """
        Write a task's rows into a transaction that stays open.
        """
        options = self._options
        name = task_transactional_id(self._prefix, task.partition, task.attempt)
        # With a prefix from the user, an open transaction with this id belongs to an earlier write.
        # Nothing of that write may be committed any more, so its ids are taken over.
        user_prefix = options.transactional_id_prefix
        fallback = None if user_prefix else fallback_id(name, task.attempt_id)
        opened = write_in_transaction(
            batches,
            options.kafka,
            options.topic,
            name,
            fallback=fallback,
            fence_id=self._fence_id,
            check_not_stopped=task.check_not_stopped,
        )
        return TaskCommitMessage(_committable(opened, task.partition))

    def commit(self, messages: Sequence[TaskCommitMessage], tasks: int, batch: int) -> None:  # noqa: ARG002
        """
        Commit all tasks if all of their transactions are still open.
        """
        # Imported by the driver only: each import delays the start of a task.
        from pyspark_pykafka.sink.batch_committer import commit_write

        with transaction_client(self._options.kafka) as transactions:
            commit_write(
                transactions,
                _prepared(messages),
                write_pattern(self._prefix),
                self._fence_id,
                takes_over=self._options.transactional_id_prefix is not None,
            )

    def abort(self, messages: Sequence[TaskCommitMessage], tasks: int) -> None:  # noqa: ARG002
        """
        Abort all tasks, and the open transactions of losing attempts.
        """
        from pyspark_pykafka.sink.batch_committer import abort_write

        with transaction_client(self._options.kafka) as transactions:
            abort_write(
                transactions, _prepared(messages), write_pattern(self._prefix), self._fence_id
            )


class ExactlyOnceStream:
    """
    Each micro-batch is committed like a batch write; a ledger records which tasks are committed.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        # Spark makes one writer for each execution of a micro-batch, and the tasks get copies.
        self._write = uuid4().hex

    def write(self, batches: Iterable[pa.RecordBatch], task: SinkTask) -> TaskCommitMessage:
        """
        Write a task's rows and its ledger marker into a transaction that stays open.
        """
        from pyspark_pykafka.sink.ledger_topic import (
            LedgerTopic,
            MicroBatchWrite,
            ensure_ledger_topic,
        )

        options = self._options
        # The query id lives as long as the checkpoint.
        prefix = options.transactional_id_prefix or f"pykafka-{task.query}"
        topic = ledger_topic(prefix)
        durability = (options.ledger_replication_factor, options.ledger_min_insync_replicas)
        write = MicroBatchWrite(prefix, task.query, is_first=task.batch <= 0)
        ensure_ledger_topic(options.kafka, LedgerTopic(topic, *durability), write)
        if task.partition == 0:
            self._complete_earlier_commit(prefix, task)

        def make_marker(records: int, content_hash: str) -> tuple[bytes, bytes]:
            fields = (task.query, task.batch, self._write, task.partition, records, content_hash)
            return to_record(Marker(*fields))

        name = stream_task_transactional_id(
            prefix, task.query, task.batch, task.partition, task.attempt
        )
        # Unlike in a batch write, an open transaction with this id may still have to be committed,
        # so the id is never taken over.
        fallback = fallback_id(name, task.attempt_id)
        ledger_record = LedgerRecord(topic, make_marker)
        opened = write_in_transaction(
            batches,
            options.kafka,
            options.topic,
            name,
            fallback=fallback,
            ledger_record=ledger_record,
            fence_id=fence_id(prefix, self._write),
            check_not_stopped=task.check_not_stopped,
        )
        return TaskCommitMessage(
            _committable(opened, task.partition), prefix, task.query, self._write
        )

    def _complete_earlier_commit(self, prefix: str, task: SinkTask) -> None:
        """
        Complete the commit that the last run of the batch has decided: until this run commits,
        these transactions may time out. Errors are only logged, since the commit tries again.

        Spark gives the query's id only to tasks, so the first task does this, not the driver.
        """
        from pyspark_pykafka.sink.decided_commits import complete_earlier_commit

        ids = (prefix, task.query)
        try:
            with transaction_client(self._options.kafka) as transactions:
                complete_earlier_commit(transactions, ids, task.batch, self._write)
        except PykafkaError as error:
            logger.warning(
                "whether an earlier run of batch %d of the query %s had begun to commit is not "
                "known, or its commit is not completed: %s; the commit of this run completes it, "
                "unless kafka.transaction.timeout.ms has passed by then",
                *(task.batch, task.query, error),
            )
        task.check_not_stopped()

    def commit(self, messages: Sequence[TaskCommitMessage], tasks: int, batch: int) -> None:
        """
        Commit all tasks except those that an earlier execution of the batch has committed.
        """
        if not messages:
            return
        from pyspark_pykafka.sink.micro_batch_committer import commit_micro_batch

        # A batch without rows is committed, too: an earlier execution of it may have had rows, and
        # committed a part of them.
        committables, first = _committables(messages), messages[0]
        committable_batch = CommittableBatch(
            first.prefix, first.query, batch, first.write, tasks, committables
        )
        with transaction_client(self._options.kafka) as transactions:
            commit_micro_batch(transactions, committable_batch)

    def abort(self, messages: Sequence[TaskCommitMessage], tasks: int) -> None:
        """
        Abort all tasks and losing attempts, unless the commit is already decided.

        Spark does not wait for tasks that it cancels: tasks that begin later find the fence id and
        give up.
        """
        if not messages:
            # Spark gives the query's id only to tasks.
            return
        from pyspark_pykafka.sink.micro_batch_committer import abort_micro_batch

        first = messages[0]
        # If a task has failed, the driver has not started to commit.
        maybe_committing = len(messages) == tasks
        ids = (first.prefix, first.query, first.write)
        with transaction_client(self._options.kafka) as transactions:
            transactions.try_to_register_fence(fence_id(first.prefix, first.write))
            abort_micro_batch(
                transactions, *ids, _committables(messages), maybe_committing=maybe_committing
            )


def _committable(opened: TaskWriteResult, task: int) -> Committable | None:
    if opened.prepared is None:
        return None
    return Committable(
        task, opened.records, opened.prepared, opened.ledger_offset, opened.content_hash
    )


def _committables(messages: Sequence[TaskCommitMessage]) -> tuple[Committable, ...]:
    return tuple(message.committable for message in messages if message.committable is not None)


def _prepared(messages: Sequence[TaskCommitMessage]) -> list[PreparedTransaction]:
    return [task.prepared for task in _committables(messages)]
