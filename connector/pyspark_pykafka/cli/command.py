"""What a subcommand of `pykafka` is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable


@dataclass(frozen=True, slots=True)
class Command:
    """One subcommand: its name, one description, its arguments and what it does."""

    name: str
    description: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


@dataclass(frozen=True, slots=True)
class Action:
    """One word after a subcommand's name, as in `pykafka progress show`."""

    name: str
    description: str
    run: Callable[[argparse.Namespace], int]
    add_arguments: tuple[Callable[[argparse.ArgumentParser], None], ...] = ()


def add_actions(
    parser: argparse.ArgumentParser,
    actions: Iterable[Action],
    add_common: Callable[[argparse.ArgumentParser], None],
) -> None:
    """Add the words that a subcommand takes, each with the common arguments and its own."""
    words = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    for action in actions:
        one = words.add_parser(action.name, help=action.description, description=action.description)
        add_common(one)
        for add in action.add_arguments:
            add(one)
        one.set_defaults(action=action)


def run_action(chosen: argparse.Namespace) -> int:
    """Run the word that was given."""
    action: Action = chosen.action
    return action.run(chosen)
