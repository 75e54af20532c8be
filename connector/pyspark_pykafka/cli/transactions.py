"""
`pykafka transactions`: shows and ends transactions of exactly-once writes, and releases prefixes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.cli.arguments import add_brokers, add_execute, add_json
from pyspark_pykafka.cli.command import Action, Command, add_actions, run_action
from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.spark.compiled_modules import WIRE, missing_compiled_modules, short_name

if TYPE_CHECKING:
    import argparse
    from types import ModuleType


def _list(arguments: argparse.Namespace) -> int:
    return int(_actions().list_transactions(arguments))


def _abort(arguments: argparse.Namespace) -> int:
    return int(_actions().abort_transactions(arguments))


def _describe(arguments: argparse.Namespace) -> int:
    return int(_actions().describe_batch(arguments))


def _complete(arguments: argparse.Namespace) -> int:
    return int(_actions().complete_last_batch(arguments))


def _release(arguments: argparse.Namespace) -> int:
    return int(_actions().release(arguments))


def _actions() -> ModuleType:
    """
    Import the actions. They need compiled modules, and other commands must work without them.
    """
    missing = missing_compiled_modules(WIRE)
    if missing:
        reasons = "; ".join(f"{short_name(name)}: {reason}" for name, reason in missing.items())
        msg = f"transactions need the compiled modules ({reasons}); run pykafka doctor for advice"
        raise OptionsError((msg,))
    from pyspark_pykafka.cli import transaction_actions

    return transaction_actions


def _add_common(parser: argparse.ArgumentParser) -> None:
    add_brokers(parser)
    add_json(parser)
    parser.add_argument(
        "--prefix",
        required=True,
        help="the write's option transactionalIdPrefix; list includes longer prefixes",
    )


def _add_all(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="include transactions that have ended")


TRANSACTIONS = Command(
    "transactions",
    "Show and abort open transactions of exactly-once writes; complete a batch, release a prefix.",
    lambda parser: add_actions(
        parser,
        (
            Action("list", "Show open transactions.", _list, (_add_all,)),
            Action("abort", "Abort open transactions.", _abort, (add_execute,)),
            Action("describe", "Show which tasks of the last batch are committed.", _describe, ()),
            Action(
                "complete",
                "Declare the last batch done with its visible rows.",
                _complete,
                (add_execute,),
            ),
            Action("release", "Free the prefix for another query.", _release, (add_execute,)),
        ),
        _add_common,
    ),
    run_action,
)
