"""`pykafka transactions`: what exactly-once writes have open, and whose a prefix is."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.cli.arguments import add_brokers, add_execute, add_json, broker_options
from pyspark_pykafka.cli.command import Action, Command, add_actions, run_action
from pyspark_pykafka.cli.output import print_table
from pyspark_pykafka.engines.selection import transactions_of
from pyspark_pykafka.engines.wire.transactions.transactions import State
from pyspark_pykafka.options import parse_sink
from pyspark_pykafka.sink.ledger_entries import ledger_topic
from pyspark_pykafka.sink.ledger_topic import LedgerTopic, is_silent, is_there, renew_ledger
from pyspark_pykafka.sink.micro_batch_committer import (
    complete,
    half_committed,
    owner_of,
    release,
    visible_of,
)
from pyspark_pykafka.sink.transactional_ids import any_query_pattern, beginning_with, of_prefix

if TYPE_CHECKING:
    import argparse

    from pyspark_pykafka.engines.wire.transactions.transactions import (
        TransactionDescription,
        Transactions,
    )
    from pyspark_pykafka.settings import KafkaSettings

_OPEN = (State.ONGOING, State.PREPARE_EPOCH_FENCE)


def _settings(chosen: argparse.Namespace) -> KafkaSettings:
    return parse_sink(broker_options(chosen), streaming=False).kafka


def _list(chosen: argparse.Namespace) -> int:
    with transactions_of(_settings(chosen)) as transactions:
        names = transactions.names(beginning_with(chosen.prefix), () if chosen.all else _OPEN)
        found = [it for it in transactions.describe_all(names).values() if it is not None]
    if chosen.json:
        print(json.dumps([_as_json(it) for it in found], indent=2))
        return 0
    head = ("TRANSACTIONAL-ID", "STATE", "PRODUCER-ID", "EPOCH", "PARTITIONS", "SINCE")
    print_table(head, [_row(it) for it in found])
    return 0


def _row(found: TransactionDescription) -> tuple[object, ...]:
    since = None
    if found.started_ms > 0:
        at = datetime.fromtimestamp(found.started_ms / 1000, tz=timezone.utc)
        since = at.isoformat(timespec="seconds")
    who = (found.transactional_id, found.state.value, found.producer_id, found.epoch)
    return (*who, found.partitions, since)


def _as_json(found: TransactionDescription) -> dict[str, Any]:
    return {**found._asdict(), "state": found.state.value}


def _abort(chosen: argparse.Namespace) -> int:
    with transactions_of(_settings(chosen)) as transactions:
        found = transactions.names(of_prefix(chosen.prefix), _OPEN)
        kept = _half_committed(transactions, chosen.prefix, found)
        names = [name for name in found if name not in kept]
        if chosen.execute:
            transactions.abort_names(names)
        for name in names:
            print(f"{'aborted' if chosen.execute else 'would abort'} {name}")
    for name in sorted(kept):
        print(f"left open {name}: its micro-batch is committed in part")
    if kept:
        print(
            "The next run of the query commits those, and so does pykafka transactions complete; "
            "to abort them would lose their rows, or stop the query: release does so."
        )
    if names and not chosen.execute:
        print("Nothing was changed; give --execute to do it, when no write is using them.")
    return 0


def _half_committed(transactions: Transactions, prefix: str, names: list[str]) -> set[str]:
    """
    Return those of open transactions that belong to a micro-batch which is committed in part.
    """
    if not any(map(any_query_pattern(prefix).has, names)):
        return set()
    if not is_there(transactions, ledger_topic(prefix)):
        return set()
    return {one.transactional_id for one in half_committed(transactions, prefix)}


def _release(chosen: argparse.Namespace) -> int:
    with transactions_of(_settings(chosen)) as transactions:
        if is_silent(transactions, ledger_topic(chosen.prefix)):
            return _renew(transactions, chosen)
        held = owner_of(transactions, chosen.prefix)
        if held is None:
            print(f"No query has the prefix {chosen.prefix}.")
            return 0
        if chosen.execute:
            release(transactions, held, chosen.prefix)
    verb = "released" if chosen.execute else "would release"
    print(f"{verb} {chosen.prefix} from the query {held.query}, last batch {held.batch}")
    if not chosen.execute:
        print("Nothing was changed; give --execute to do it, when that query has been stopped.")
    return 0


def _describe(chosen: argparse.Namespace) -> int:
    with transactions_of(_settings(chosen)) as transactions:
        held = owner_of(transactions, chosen.prefix)
        if held is None:
            print(f"No query has the prefix {chosen.prefix}.")
            return 0
        found = visible_of(transactions, held, chosen.prefix)
    state = "complete" if found.is_whole else "in part"
    print(f"query {held.query}, batch {held.batch}, {state}: {found}")
    if not found.is_whole:
        print(
            "A run of the query completes it if what was decided is open still, or if its tasks "
            "are the same. Else let it be written whole, which repeats what is visible (release), "
            "or count it as done, which gives up the rest (complete)."
        )
    return 0


def _complete(chosen: argparse.Namespace) -> int:
    with transactions_of(_settings(chosen)) as transactions:
        held = owner_of(transactions, chosen.prefix)
        if held is None:
            print(f"No query has the prefix {chosen.prefix}.")
            return 0
        act = complete if chosen.execute else visible_of
        found = act(transactions, held, chosen.prefix)
    verb = "completed" if chosen.execute else "would complete"
    print(f"{verb} batch {held.batch} of the query {held.query}: {found}")
    if not chosen.execute:
        print("Nothing was changed; give --execute to do it, when that query has been stopped.")
    return 0


def _renew(transactions: Transactions, chosen: argparse.Namespace) -> int:
    """
    Start a ledger anew of which the brokers know that it said something.
    """
    known = transactions.committed_names(any_query_pattern(chosen.prefix))
    topic = LedgerTopic(ledger_topic(chosen.prefix))
    if not known:
        print(f"No query has the prefix {chosen.prefix}.")
        return 0
    if chosen.execute:
        renew_ledger(transactions, _settings(chosen), topic)
    verb = "started" if chosen.execute else "would start"
    print(
        f"{verb} the ledger {topic.name} anew; it does not tell of {known[0]}, which is committed"
    )
    if not chosen.execute:
        print("Nothing was changed; give --execute to do it: rows of the last batch may repeat.")
    return 0


def _add_common(parser: argparse.ArgumentParser) -> None:
    add_brokers(parser)
    parser.add_argument(
        "--prefix",
        required=True,
        help="the option transactionalIdPrefix of the write; list shows longer prefixes, too",
    )


def _add_all(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="those that have ended, too")


TRANSACTIONS = Command(
    "transactions",
    "Show and abort what exactly-once writes have open; finish a batch, release a prefix.",
    lambda parser: add_actions(
        parser,
        (
            Action("list", "Show what is open.", _list, (_add_all, add_json)),
            Action("abort", "Abort what is open.", _abort, (add_execute,)),
            Action("describe", "Show what is committed of a stream's last batch.", _describe, ()),
            Action("complete", "Count that batch as done as it is.", _complete, (add_execute,)),
            Action("release", "Let another query have the prefix.", _release, (add_execute,)),
        ),
        _add_common,
    ),
    run_action,
)
