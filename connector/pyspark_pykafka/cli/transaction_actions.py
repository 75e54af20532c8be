"""
The actions of `pykafka transactions`; they need the compiled modules of the wire engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_pykafka.cli.arguments import broker_options
from pyspark_pykafka.cli.output import escaped, print_json, print_table
from pyspark_pykafka.engines.selection import metadata_backend, transaction_client
from pyspark_pykafka.engines.wire.transactions.values import TransactionState
from pyspark_pykafka.errors import ExactlyOnceError
from pyspark_pykafka.options import parse_sink
from pyspark_pykafka.sink.ledger_entries import ledger_topic
from pyspark_pykafka.sink.ledger_topic import LedgerTopic, ledger_exists, recreate_ledger
from pyspark_pykafka.sink.prefix_commands import (
    complete_batch,
    find_partly_committed,
    is_ledger_truncated,
    is_ledger_unused,
    read_batch_state,
    read_prefix_owner,
    release_prefix,
)
from pyspark_pykafka.sink.transactional_ids import (
    any_query_pattern,
    prefix_pattern,
    starting_with_pattern,
)
from pyspark_pykafka.timestamps import format_timestamp

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
    from pyspark_pykafka.engines.wire.transactions.values import TransactionDescription
    from pyspark_pykafka.settings import KafkaSettings
    from pyspark_pykafka.sink.ledger_entries import Marker
    from pyspark_pykafka.sink.replay import BatchState

_OPEN = (TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE)


def _settings(arguments: argparse.Namespace) -> KafkaSettings:
    kafka = parse_sink(broker_options(arguments), streaming=False).kafka
    # Fails early if no broker responds; transaction requests would wait for kafka.max.block.ms.
    metadata_backend(kafka, "read_uncommitted", "auto").describe_topics(())
    return kafka


def list_transactions(arguments: argparse.Namespace) -> int:
    """
    Print open transactions; with ``--all`` also those that have ended.
    """
    with transaction_client(_settings(arguments)) as transactions:
        ids = transactions.list_ids(
            starting_with_pattern(arguments.prefix), () if arguments.all else _OPEN
        )
        descriptions = [
            transaction
            for transaction in transactions.describe_all(ids).values()
            if transaction is not None
        ]
    if arguments.json:
        print_json([_as_json(transaction) for transaction in descriptions])
        return 0
    head = ("TRANSACTIONAL-ID", "STATE", "PRODUCER-ID", "EPOCH", "PARTITIONS", "SINCE")
    print_table(head, [_row(transaction) for transaction in descriptions])
    return 0


def _row(transaction: TransactionDescription) -> tuple[object, ...]:
    since = format_timestamp(transaction.started_ms) if transaction.started_ms > 0 else None
    identity = (
        transaction.transactional_id,
        transaction.state.value,
        transaction.producer_id,
        transaction.epoch,
    )
    return (*identity, transaction.partitions, since)


def _as_json(transaction: TransactionDescription) -> dict[str, Any]:
    return {**transaction._asdict(), "state": transaction.state.value}


def abort_transactions(arguments: argparse.Namespace) -> int:
    """
    Abort open transactions, except those of a micro-batch that is committed in part.
    """
    with transaction_client(_settings(arguments)) as transactions:
        open_ids = transactions.list_ids(prefix_pattern(arguments.prefix), _OPEN)
        partly_committed = _partly_committed(transactions, arguments, open_ids)
        aborted = [id_ for id_ in open_ids if id_ not in partly_committed]
        if arguments.execute:
            transactions.abort_ids(aborted)
    if arguments.json:
        ids = {"aborted": aborted, "committedInPart": sorted(partly_committed)}
        print_json({**ids, "executed": arguments.execute})
        return 0
    for id_ in aborted:
        print("aborted" if arguments.execute else "would abort", escaped(id_))
    for id_ in sorted(partly_committed):
        print(f"left open {escaped(id_)}: its micro-batch is committed in part")
    if partly_committed:
        print(
            "The next run of the query commits these, and so does pykafka transactions complete. "
            "Aborting them loses rows or stops the query; pykafka transactions release aborts them."
        )
    if aborted and not arguments.execute:
        print("Dry run: nothing was changed. Use --execute when no write uses these transactions.")
    return 0


def _partly_committed(
    transactions: Transactions, arguments: argparse.Namespace, open_ids: list[str]
) -> set[str]:
    """
    Return the ids of the open transactions of a micro-batch that is committed in part.
    """
    prefix = arguments.prefix
    if not any(map(any_query_pattern(prefix).matches, open_ids)):
        return set()
    if not ledger_exists(transactions, ledger_topic(prefix)):
        return set()
    partly_committed = find_partly_committed(transactions, prefix, execute=arguments.execute)
    return {transaction.transactional_id for transaction in partly_committed} & set(open_ids)


def release(arguments: argparse.Namespace) -> int:
    """
    Free the prefix for another query, and let the same query write the whole of its last batch
    again.
    """
    with transaction_client(_settings(arguments)) as transactions:
        exists = ledger_exists(transactions, ledger_topic(arguments.prefix))
        if not exists or is_ledger_unused(transactions, arguments.prefix):
            is_truncated = exists and is_ledger_truncated(transactions, arguments.prefix)
            return _renew(transactions, arguments, is_truncated=is_truncated)
        owner = read_prefix_owner(transactions, arguments.prefix)
        if owner is None:
            raise _no_query_error(arguments)
        if arguments.execute:
            release_prefix(transactions, owner, arguments.prefix)
    verb = "released" if arguments.execute else "would release"
    return _report_change(
        arguments,
        _owner_as_json(owner),
        f"{verb} {arguments.prefix} from the query {owner.query}, last batch {owner.batch}",
    )


def describe_batch(arguments: argparse.Namespace) -> int:
    """
    Print which tasks of a stream's last batch are committed.
    """
    owner, state = _last_batch(arguments, read_batch_state)
    if arguments.json:
        print_json({**_owner_as_json(owner), **_state_as_json(state)})
        return 0
    extent = "complete" if state.is_whole else "in part"
    print(escaped(f"query {owner.query}, batch {owner.batch}, {extent}: {state}"))
    if not state.is_whole:
        print(
            "The next run of the query completes it if the transactions that a driver decided to "
            "commit are still open, or if the tasks have the same rows. Otherwise there are two "
            "ways: release lets the next run write the whole batch, which repeats visible rows; "
            "complete declares the batch done, which gives up the other rows."
        )
    return 0


def complete_last_batch(arguments: argparse.Namespace) -> int:
    """
    Declare the last batch done with its visible rows.
    """
    change = complete_batch if arguments.execute else read_batch_state
    owner, state = _last_batch(arguments, change)
    verb = "completed" if arguments.execute else "would complete"
    return _report_change(
        arguments,
        {**_owner_as_json(owner), **_state_as_json(state)},
        f"{verb} batch {owner.batch} of the query {owner.query}: {state}",
    )


def _last_batch(
    arguments: argparse.Namespace,
    read_or_complete: Callable[[Transactions, Marker, str], BatchState],
) -> tuple[Marker, BatchState]:
    """
    Return the marker and the state of a prefix's last batch.

    Raises :class:`ExactlyOnceError` if no query has the prefix.
    """
    with transaction_client(_settings(arguments)) as transactions:
        # Checked first: a read of an unknown ledger is retried, since the ledger may be new.
        if not ledger_exists(transactions, ledger_topic(arguments.prefix)):
            raise _no_query_error(arguments)
        owner = read_prefix_owner(transactions, arguments.prefix)
        if owner is None:
            raise _no_query_error(arguments)
        return owner, read_or_complete(transactions, owner, arguments.prefix)


def _report_change(
    arguments: argparse.Namespace,
    document: dict[str, Any],
    text: str,
    advice: str = "Use --execute once the query is stopped.",
) -> int:
    """
    Print a change, or the note about the dry run without --execute; return the exit code.
    """
    if arguments.json:
        print_json({**document, "executed": arguments.execute})
        return 0
    print(escaped(text, keep="\n"))
    if not arguments.execute:
        print(f"Dry run: nothing was changed. {advice}")
    return 0


def _no_query_error(arguments: argparse.Namespace) -> ExactlyOnceError:
    msg = (
        f"no query has the prefix '{arguments.prefix}': no stream has committed a micro-batch with "
        "it, or it has been released since; correct --prefix, the write's transactionalIdPrefix"
    )
    return ExactlyOnceError("EXACTLY_ONCE_PREFIX_NOT_FOUND", msg)


def _owner_as_json(owner: Marker) -> dict[str, Any]:
    return {"query": owner.query, "batch": owner.batch}


def _state_as_json(state: BatchState) -> dict[str, Any]:
    return {"complete": state.is_whole, "tasks": state.tasks, "rows": state.records}


def _renew(transactions: Transactions, arguments: argparse.Namespace, *, is_truncated: bool) -> int:
    """
    Start a new ledger if the old one is truncated, or lacks a transaction that is committed.

    Raises :class:`ExactlyOnceError` if neither is true: then no query has the prefix.
    """
    committed_ids = transactions.list_committed_ids(any_query_pattern(arguments.prefix))
    topic = LedgerTopic(ledger_topic(arguments.prefix))
    if not committed_ids and not is_truncated:
        raise _no_query_error(arguments)
    if arguments.execute:
        recreate_ledger(transactions, _settings(arguments), topic)
    verb = "started" if arguments.execute else "would start"
    reason = (
        f"it does not record {committed_ids[0]}, which is committed"
        if committed_ids
        else "entries of the old one were deleted"
    )
    return _report_change(
        arguments,
        {"newLedger": topic.name},
        f"{verb} a new ledger {topic.name}: {reason}",
        "With --execute, rows of the last batch may repeat.",
    )
