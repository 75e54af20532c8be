"""
The declaration of a subcommand of `pykafka`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable


@dataclass(frozen=True, slots=True)
class Command:
    """
    One subcommand: its name, description, arguments and function.
    """

    name: str
    description: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


@dataclass(frozen=True, slots=True)
class Action:
    """
    An action of a subcommand, such as `show` in `pykafka progress show`.
    """

    name: str
    description: str
    run: Callable[[argparse.Namespace], int]
    add_arguments: tuple[Callable[[argparse.ArgumentParser], None], ...] = ()


def add_actions(
    parser: argparse.ArgumentParser,
    actions: Iterable[Action],
    add_common: Callable[[argparse.ArgumentParser], None],
) -> None:
    """
    Add the actions of a subcommand, each with the common arguments and its own.
    """
    subparsers = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    for action in actions:
        subparser = subparsers.add_parser(
            action.name, help=action.description, description=action.description
        )
        add_common(subparser)
        for add in action.add_arguments:
            add(subparser)
        subparser.set_defaults(action=action)


def run_action(arguments: argparse.Namespace) -> int:
    """
    Run the action that the arguments select.
    """
    action: Action = arguments.action
    return action.run(arguments)
