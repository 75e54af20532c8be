"""`pykafka transactions`: what exactly-once writes have open, and whose a prefix is."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.cli.arguments import add_brokers, add_execute, add_json, broker_options
from pyspark_pykafka.cli.command import Action, Command, add_actions, run_action
from pyspark_pykafka.cli.output import print_table
from pyspark_pykafka.engines.selection import transaction_client
from pyspark_pykafka.engines.wire.transactions.values import (
    TransactionState,
)
from pyspark_pykafka.options import parse_sink
from pyspark_pykafka.sink.ledger_entries import ledger_topic
from pyspark_pykafka.sink.ledger_topic import (
    LedgerTopic,
    is_ledger_empty,
    ledger_exists,
    recreate_ledger,
)
from pyspark_pykafka.sink.micro_batch_committer import (
    complete_batch,
    find_partly_committed,
    read_batch_state,
    read_prefix_owner,
    release_prefix,
)
from pyspark_pykafka.sink.transactional_ids import (
    any_query_pattern,
    prefix_pattern,
    starting_with_pattern,
)

if TYPE_CHECKING:
    import argparse

    from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
    from pyspark_pykafka.engines.wire.transactions.values import (
        TransactionDescription,
    )
    from pyspark_pykafka.settings import KafkaSettings

_OPEN = (TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE)


def _settings(chosen: argparse.Namespace) -> KafkaSettings:
    return parse_sink(broker_options(chosen), streaming=False).kafka


def _list(chosen: argparse.Namespace) -> int:
    with transaction_client(_settings(chosen)) as transactions:
        names = transactions.list_ids(
            starting_with_pattern(chosen.prefix), () if chosen.all else _OPEN
        )
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
    with transaction_client(_settings(chosen)) as transactions:
        found = transactions.list_ids(prefix_pattern(chosen.prefix), _OPEN)
        kept = _partly_committed(transactions, chosen.prefix, found)
        names = [name for name in found if name not in kept]
        if chosen.execute:
            transactions.abort_ids(names)
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


def _partly_committed(transactions: Transactions, prefix: str, names: list[str]) -> set[str]:
    """
    Return those of open transactions that belong to a micro-batch which is committed in part.
    """
    if not any(map(any_query_pattern(prefix).matches, names)):
        return set()
    if not ledger_exists(transactions, ledger_topic(prefix)):
        return set()
    return {one.transactional_id for one in find_partly_committed(transactions, prefix)}


def _release(chosen: argparse.Namespace) -> int:
    with transaction_client(_settings(chosen)) as transactions:
        if is_ledger_empty(transactions, ledger_topic(chosen.prefix)):
            return _renew(transactions, chosen)
        held = read_prefix_owner(transactions, chosen.prefix)
        if held is None:
            print(f"No query has the prefix {chosen.prefix}.")
            return 0
        if chosen.execute:
            release_prefix(transactions, held, chosen.prefix)
    verb = "released" if chosen.execute else "would release"
    print(f"{verb} {chosen.prefix} from the query {held.query}, last batch {held.batch}")
    if not chosen.execute:
        print("Nothing was changed; give --execute to do it, when that query has been stopped.")
    return 0


def _describe(chosen: argparse.Namespace) -> int:
    with transaction_client(_settings(chosen)) as transactions:
        held = read_prefix_owner(transactions, chosen.prefix)
        if held is None:
            print(f"No query has the prefix {chosen.prefix}.")
            return 0
        found = read_batch_state(transactions, held, chosen.prefix)
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
    with transaction_client(_settings(chosen)) as transactions:
        held = read_prefix_owner(transactions, chosen.prefix)
        if held is None:
            print(f"No query has the prefix {chosen.prefix}.")
            return 0
        act = complete_batch if chosen.execute else read_batch_state
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
    known = transactions.list_committed_ids(any_query_pattern(chosen.prefix))
    topic = LedgerTopic(ledger_topic(chosen.prefix))
    if not known:
        print(f"No query has the prefix {chosen.prefix}.")
        return 0
    if chosen.execute:
        recreate_ledger(transactions, _settings(chosen), topic)
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
