"""
How often rows are delivered: what a task does with them, and what the driver does in the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from pyspark_pykafka.engines.selection import (
    check_transactions,
    produce,
    transaction_client,
    write_prepared,
)
from pyspark_pykafka.engines.transaction_contract import LedgerRecord
from pyspark_pykafka.errors import OptionsError
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
    stream_task_id,
    task_id,
    write_pattern,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from pyspark_pykafka.engines.transaction_contract import OpenTransaction, PreparedTransaction
    from pyspark_pykafka.options import SinkOptions


@dataclass(frozen=True, slots=True)
class SinkTask:
    """
    The task that writes; ``query`` and ``batch`` are those of a stream, empty and -1 else.

    ``attempt`` counts the attempts in one run of a stage, ``attempt_id`` is another for each.
    """

    partition: int
    attempt: int
    query: str
    batch: int
    attempt_id: int


@dataclass(frozen=True, slots=True)
class TaskCommitMessage:
    """
    What a task tells the driver; ``committable`` is its open transaction, None without one.

    ``prefix``, ``query`` and ``write`` say whose it is, for a stream: the writer that commits it is
    another one than its tasks had, where a batch has the same.
    """

    committable: Committable | None = None
    prefix: str = ""
    query: str = ""
    write: str = ""


class Delivery(Protocol):
    """
    Crosses with the writer to the executors; ``tasks`` below is the messages of the tasks.
    """

    def write(self, batches: Iterable[pa.RecordBatch], task: SinkTask) -> TaskCommitMessage:
        """
        Write a task's rows; all of them are acknowledged then.
        """

    def commit(self, messages: Sequence[TaskCommitMessage], tasks: int, batch: int) -> None:
        """
        Make everything visible, once all tasks are done; ``tasks`` is their number.
        """

    def abort(self, messages: Sequence[TaskCommitMessage], tasks: int) -> None:
        """
        Leave nothing visible, after a task has failed for good, or the commit has.
        """


def make_delivery(options: SinkOptions, *, streaming: bool) -> Delivery:
    """
    Return what the options ask for.

    Raises :class:`OptionsError` if it needs transactions, and the settings do not allow them; or if
    a stream would write into its own ledger.
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
        f"topic is '{options.topic}', the ledger of transactionalIdPrefix '{prefix}', whose "
        "entries tell what is committed; it must be another topic, or the prefix another one"
    )
    raise OptionsError((msg,))


class AtLeastOnce:
    """
    Rows are visible once they are acknowledged; a task or batch that fails is written again.
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
        Do nothing: all is visible.
        """

    def abort(self, messages: Sequence[TaskCommitMessage], tasks: int) -> None:
        """
        Do nothing: what is visible stays.
        """


class ExactlyOnceBatch:
    """
    Every attempt of a task has a transaction of its own, and the driver commits those that won.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._prefix = options.transactional_id_prefix or f"pykafka-{uuid4().hex}"
        self._fence_id = fence_id(self._prefix, uuid4().hex)

    def write(self, batches: Iterable[pa.RecordBatch], task: SinkTask) -> TaskCommitMessage:
        """
        Write a task's rows, and leave them invisible.
        """
        options = self._options
        name = task_id(self._prefix, task.partition, task.attempt)
        # Where the user has given the prefix, whoever has the name is a write before this one, of
        # which nothing may be committed any more: its names are taken over.
        given = options.transactional_id_prefix
        fallback = None if given else fallback_id(name, task.attempt_id)
        opened = write_prepared(
            batches, options.kafka, options.topic, name, fallback=fallback, fence_id=self._fence_id
        )
        return TaskCommitMessage(_committable(opened, task.partition))

    def commit(self, messages: Sequence[TaskCommitMessage], tasks: int, batch: int) -> None:  # noqa: ARG002
        """
        Commit all tasks, if all are open still.
        """
        # Nobody else needs it, and each import is a part of a task's start.
        from pyspark_pykafka.sink.batch_committer import commit_write

        with transaction_client(self._options.kafka) as transactions:
            commit_write(
                transactions, _prepared(messages), write_pattern(self._prefix), self._fence_id
            )

    def abort(self, messages: Sequence[TaskCommitMessage], tasks: int) -> None:  # noqa: ARG002
        """
        Abort all tasks, and what attempts that lost have left.
        """
        from pyspark_pykafka.sink.batch_committer import abort_write

        with transaction_client(self._options.kafka) as transactions:
            abort_write(
                transactions, _prepared(messages), write_pattern(self._prefix), self._fence_id
            )


class ExactlyOnceStream:
    """
    Each micro-batch is committed as a batch is, and a ledger tells what was committed of it before.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        # A writer is made for each execution of a micro-batch, and its tasks get copies of it.
        self._write = uuid4().hex

    def write(self, batches: Iterable[pa.RecordBatch], task: SinkTask) -> TaskCommitMessage:
        """
        Write a task's rows and its entry for the ledger, and leave them invisible.
        """
        from pyspark_pykafka.sink.ledger_topic import (
            LedgerTopic,
            MicroBatchWrite,
            ensure_ledger_topic,
        )

        options = self._options
        # The query's id stays the same for as long as its checkpoint is there.
        prefix = options.transactional_id_prefix or f"pykafka-{task.query}"
        topic = ledger_topic(prefix)
        durability = (options.ledger_replication_factor, options.ledger_min_insync_replicas)
        write = MicroBatchWrite(prefix, task.query, is_first=task.batch <= 0)
        ensure_ledger_topic(options.kafka, LedgerTopic(topic, *durability), write)

        def entry(records: int, content: str) -> tuple[bytes, bytes]:
            it = (task.query, task.batch, self._write, task.partition, records, content)
            return to_record(Marker(*it))

        name = stream_task_id(prefix, task.query, task.batch, task.partition, task.attempt)
        # Whose the name is does not matter: the ledger decides.
        fallback = fallback_id(name, task.attempt_id)
        ledger_record = LedgerRecord(topic, entry)
        opened = write_prepared(
            batches,
            options.kafka,
            options.topic,
            name,
            fallback=fallback,
            ledger_record=ledger_record,
        )
        return TaskCommitMessage(
            _committable(opened, task.partition), prefix, task.query, self._write
        )

    def commit(self, messages: Sequence[TaskCommitMessage], tasks: int, batch: int) -> None:
        """
        Commit all tasks but those that an earlier execution of the batch has committed.
        """
        if not messages:
            return
        from pyspark_pykafka.sink.micro_batch_committer import commit_micro_batch

        # Without any row, too: the batch may have had some before, and a part be committed.
        committables, first = _committables(messages), messages[0]
        done = CommittableBatch(first.prefix, first.query, batch, first.write, tasks, committables)
        with transaction_client(self._options.kafka) as transactions:
            commit_micro_batch(transactions, done)

    def abort(self, messages: Sequence[TaskCommitMessage], tasks: int) -> None:
        """
        Abort all tasks, and what attempts that lost have left, unless the commit was decided.
        """
        if not messages:
            return
        from pyspark_pykafka.sink.micro_batch_committer import abort_micro_batch

        first = messages[0]
        with transaction_client(self._options.kafka) as transactions:
            # Where a task has failed the driver has not begun to commit.
            maybe_committing = len(messages) == tasks
            whose = (first.prefix, first.query, first.write)
            abort_micro_batch(
                transactions, *whose, _committables(messages), maybe_committing=maybe_committing
            )


def _committable(opened: OpenTransaction, task: int) -> Committable | None:
    if opened.prepared is None:
        return None
    return Committable(
        task, opened.records, opened.prepared, opened.ledger_offset, opened.content_hash
    )


def _committables(messages: Sequence[TaskCommitMessage]) -> tuple[Committable, ...]:
    return tuple(it.committable for it in messages if it.committable is not None)


def _prepared(messages: Sequence[TaskCommitMessage]) -> list[PreparedTransaction]:
    return [task.prepared for task in _committables(messages)]
