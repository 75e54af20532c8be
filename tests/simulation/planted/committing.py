"""
Planted faults of exactly-once commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tests.simulation.planted.fault import Fault

if TYPE_CHECKING:
    from tests.simulation.spark.connector import Connector


def missed_marker(connector: Connector) -> list[Any]:
    """
    A replay does not see the last committed marker of its batch.
    """
    module = connector.module("sink.micro_batch_committer")
    original = module.committed_tasks

    def committed_tasks(batch: Any, committed: Any) -> Any:
        markers = [
            index
            for index, (_, entry) in enumerate(committed)
            if type(entry).__name__ == "Marker" and entry.batch == batch.batch
        ]
        missed_markers = markers[-1:]
        return original(
            batch, [entry for index, entry in enumerate(committed) if index not in missed_markers]
        )

    return [patch.object(module, "committed_tasks", committed_tasks)]


def late_fence(connector: Connector) -> list[Any]:
    """
    Open transactions of earlier attempts are not fenced before a batch is committed.
    """
    module = connector.module("sink.micro_batch_committer")
    return [patch.object(module, "_abort_losing_attempts_if_alone", lambda *_: None)]


def no_roll_forward(connector: Connector) -> list[Any]:
    """
    A restart aborts the transactions that a dead driver had decided to commit.
    """
    modules = map(connector.module, ("sink.micro_batch_committer", "sink.decided_commits"))
    return [patch.object(module, "roll_forward", lambda *_: []) for module in modules]


def row_hashes_are_not_compared(connector: Connector) -> list[Any]:
    """
    A replay counts as identical if it has the same number of rows: the rows' hashes are not
    compared. Nothing is rolled forward.
    """
    module = connector.module("sink.replay")
    original = module._check_same_rows

    def check(batch: Any, marker: Any, now: Any, state: Any) -> None:
        records = 0 if now is None else now.records
        if marker.records != records:
            original(batch, marker, now, state)

    return [*no_roll_forward(connector), patch.object(module, "_check_same_rows", check)]


def replay_with_other_partitions(connector: Connector) -> list[Any]:
    """
    A tiny batch has one task when it is prefetched, and one per range when it is replayed.
    """
    reader = connector.module("spark.stream_reader").KafkaStreamReader
    original = reader.partitions

    def partitions(self: Any, start: Any, end: Any) -> Any:
        planned = original(self, start, end)
        if "is_later" in self.__dict__ or len(planned) != 1:
            self.is_later = True
            return planned
        self.is_later = True
        ranges = planned[0].value
        kind = type(planned[0])
        if not isinstance(ranges, tuple) or not all(
            hasattr(offset_range, "tp") for offset_range in ranges
        ):
            return planned
        self.__dict__["_attached"] = None
        return [kind(offset_range) for offset_range in ranges]

    return [*row_hashes_are_not_compared(connector), patch.object(reader, "partitions", partitions)]


def intent_is_not_awaited(connector: Connector) -> list[Any]:
    """
    Transactions are committed although the intent was not appended.
    """
    module = connector.module("sink.micro_batch_committer")
    return [patch.object(module, "_decide", lambda *_: None)]


def two_writers(connector: Connector) -> list[Any]:
    """
    Other writers of the same batch are not detected.
    """
    committer = connector.module("sink.micro_batch_committer")
    return [
        patch.object(committer, "check_single_writer", lambda *_: None),
        patch.object(committer, "check_binding", lambda *_: None),
        patch.object(committer, "check_no_later_commit", lambda *_: None),
    ]


def later_batch_is_not_noticed(connector: Connector) -> list[Any]:
    """
    A driver aborts open transactions of the next batch, which another process of its query is
    already writing.
    """
    committer = connector.module("sink.micro_batch_committer")
    return [patch.object(committer, "check_no_later_batch_begun", lambda *_: None)]


def ledger_shows_open_markers(connector: Connector) -> list[Any]:
    """
    The ledger is read with ``read_uncommitted``: markers of open and aborted transactions count as
    committed.
    """
    ledger = connector.module("sink.ledger").Ledger

    def read_committed(self: Any, start: int, end: int) -> Any:
        return self.read_all(start, end)

    return [patch.object(ledger, "read_committed", read_committed)]


def late_intent(connector: Connector) -> list[Any]:
    """
    A driver misses an intent that a dead driver's request appends after the ledger was first read.
    """
    module = connector.module("sink.micro_batch_committer")
    original = module._committed_before

    def committed_before(transactions: Any, ledger: Any, batch: Any) -> Any:
        entries = original(transactions, ledger, batch)
        return [entry for entry in entries if type(entry[1]).__name__ != "Intent"]

    return [patch.object(module, "_committed_before", committed_before)]


def restart_does_not_wait_for_markers(connector: Connector) -> list[Any]:
    """
    A restart does not wait for the markers of transactions whose commit is decided.
    """
    ledger = connector.module("sink.ledger").Ledger
    original = ledger.read_committed

    def read_committed(self: Any, start: int, end: int) -> Any:
        return original(self, start, min(end, self.watermarks().visible_end))

    return [
        patch.object(ledger, "wait_until_stable", lambda *_: None),
        patch.object(ledger, "read_committed", read_committed),
    ]


def late_end_txn_is_not_fenced(connector: Connector) -> list[Any]:
    """
    A batch write whose commit failed is reported as aborted, while its EndTxn may still arrive.
    """
    module = connector.module("sink.batch_committer")
    fenced = connector.module("engines.wire.transactions.transaction_errors").FencedError

    def check_decided(_: Any, __: Any, error: Exception, *___: Any) -> None:
        raise fenced(str(error)) from error

    return [patch.object(module, "_check_decided", check_decided)]


def commit_is_not_checked(connector: Connector) -> list[Any]:
    """
    A batch write does not check whether all of its transactions are still open.
    """
    module = connector.module("sink.batch_committer")
    return [
        patch.object(module, "check_open", lambda *_: {}),
        patch.object(module, "_check_decided", lambda *_: None),
    ]


def markers_are_not_awaited(connector: Connector) -> list[Any]:
    """
    A batch write returns when its commit is decided, before readers can see its rows.
    """
    lookups = connector.module("engines.wire.transactions.lookups").TransactionLookups
    return [patch.object(lookups, "wait_until_visible", lambda *_: None)]


def decided_batch_is_aborted(connector: Connector) -> list[Any]:
    """
    After a failed commit everything is aborted, even if the intent shows that the driver had
    decided to commit.
    """
    module = connector.module("sink.micro_batch_committer")
    return [patch.object(module, "_is_decided", lambda *_: False)]


def open_is_not_checked(connector: Connector) -> list[Any]:
    """
    The commit of a micro-batch is decided without a check that all of its transactions are still
    open.
    """
    module = connector.module("sink.micro_batch_committer")
    return [patch.object(module, "check_open", lambda *_: {})]


def former_coordinator_is_believed(connector: Connector) -> list[Any]:
    """
    If a former coordinator responds NOT_COORDINATOR for a transactional id, this counts as the
    response that the id has no transaction.
    """
    module = connector.module("engines.wire.transactions.lookups")

    def describe_once(self: Any, names: Any, deadline: Any) -> Any:
        request = module.describe_transactions
        responses = self._coordinators.send_batched(names, request, deadline)
        entries = [entry for response in responses for entry in response.transaction_states]
        return {entry.transactional_id: module._to_description(entry) for entry in entries}

    return [patch.object(module.TransactionLookups, "_describe_once", describe_once)]


def ledger_is_read_without_a_barrier(connector: Connector) -> list[Any]:
    """
    The ledger is read without a barrier, up to the last stable offset only: the last decision,
    which lies beyond that offset, is missed.
    """
    module = connector.module("sink.micro_batch_committer")
    ledger = connector.module("sink.ledger").Ledger

    def read(self: Any, start: int) -> Any:
        return self.read_all(start, self.watermarks().visible_end)

    def withdraw(ledger: Any, query: str, write: str, first: int) -> bool:
        return not module._is_decided(read(ledger, first), query, write)

    return [
        patch.object(ledger, "read_up_to_barrier", read),
        patch.object(module, "_withdraw", withdraw),
    ]


def dead_write_is_not_aborted(connector: Connector) -> list[Any]:
    """
    A batch write takes over only the ids of its own tasks, although a dead write with its prefix
    had more tasks.
    """
    module = connector.module("sink.batch_committer")
    return [patch.object(module, "_list_unfinished", lambda *_: [])]


FAULTS = {
    "missed-marker": Fault("exactly-once", "duplicate", missed_marker),
    "late-fence": Fault("exactly-once", "stuck", late_fence),
    "no-roll-forward": Fault("exactly-once", "REPLAY_DIFFERS", no_roll_forward),
    "row-hashes-are-not-compared": Fault("exactly-once", "lost", row_hashes_are_not_compared),
    "replay-with-other-partitions": Fault("chained", "lost", replay_with_other_partitions),
    "intent-is-not-awaited": Fault("exactly-once", "REPLAY_DIFFERS", intent_is_not_awaited),
    "two-writers": Fault("exactly-once", "duplicate", two_writers),
    "later-batch-is-not-noticed": Fault(
        "exactly-once", "REPLAY_DIFFERS", later_batch_is_not_noticed
    ),
    "ledger-shows-open-markers": Fault("exactly-once", "stuck", ledger_shows_open_markers),
    "late-end-txn-is-not-fenced": Fault("batch-write", "visible after", late_end_txn_is_not_fenced),
    "commit-is-not-checked": Fault("batch-write", "lost", commit_is_not_checked),
    "markers-are-not-awaited": Fault("batch-write", "not visible yet", markers_are_not_awaited),
    "dead-write-is-not-aborted": Fault("batch-write", "not visible yet", dead_write_is_not_aborted),
    "late-intent": Fault("exactly-once", "REPLAY_DIFFERS", late_intent),
    "restart-does-not-wait-for-markers": Fault(
        "exactly-once", "duplicate", restart_does_not_wait_for_markers
    ),
    "decided-batch-is-aborted": Fault("exactly-once", "REPLAY_DIFFERS", decided_batch_is_aborted),
    "open-is-not-checked": Fault("exactly-once", "REPLAY_DIFFERS", open_is_not_checked),
    "former-coordinator-is-believed": Fault(
        "batch-write", "not visible yet", former_coordinator_is_believed
    ),
    "ledger-is-read-without-a-barrier": Fault(
        "exactly-once", "REPLAY_DIFFERS", ledger_is_read_without_a_barrier
    ),
}
