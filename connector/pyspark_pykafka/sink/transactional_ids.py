"""
The names of transactions: which belong to a write, so that nothing else is ended with it.

All begin with the user's prefix, which is what ACLs are given for. One prefix may begin another
(``etl`` and ``etl-2``), so that a name belongs to a write only if all of it has the right form.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.contract import FallbackId, TransactionalIdPattern

if TYPE_CHECKING:
    from collections.abc import Iterable

_TASK = r"-\d+-\d+(-again\d+)?"
_TURN = r"-[01]"
_QUERY = r"-[0-9a-f]{8}"
# Under these nothing is ever written: they are known, or not.
_SIGNS = rf"-ended-[0-9a-f]+|({_QUERY}{_TURN})?-\d+-\d+-again"
_ID_LENGTH = 8
_ATTEMPT = re.compile(r"(?P<task>.*-\d+)-(?P<attempt>\d+)(?P<again>-again\d+)?")
# Spark gives a task up after four attempts, unless it is told otherwise.
_MOST_ATTEMPTS_BEFORE = 8


class OtherAttempts(NamedTuple):
    """
    The names that other attempts of tasks would have; ``ran_again`` if Spark has made some surely.

    It has, too, if the brokers know one of ``signs``: there may be names then that nobody can tell.
    """

    names: list[str]
    signs: list[str]
    ran_again: bool


def other_attempt_ids(names: Iterable[str]) -> OtherAttempts:
    """
    Return what attempts of the same tasks would be called that were before these, or beside.

    One that runs beside another (speculation) has the next number.
    """
    others: list[str] = []
    signs: list[str] = []
    ran_again = False
    for found in filter(None, map(_ATTEMPT.fullmatch, names)):
        attempt, again = int(found["attempt"]), found["again"] is not None
        first = max(attempt - _MOST_ATTEMPTS_BEFORE, 0)
        all_names = [f"{found['task']}-{number}" for number in range(first, attempt + 2)]
        others += [name for name in all_names if name != found[0]]
        signs.append(fallback_sign(f"{found['task']}-{attempt}"))
        ran_again = ran_again or again or attempt > 0
    return OtherAttempts(others, signs, ran_again)


def task_id(prefix: str, task: int, attempt: int) -> str:
    """
    Return the name of one attempt of a batch write's task.
    """
    return f"{prefix}-{task}-{attempt}"


def fallback_id(name: str, task_attempt: int) -> FallbackId:
    """
    Return the id for an attempt that finds its own in use, by Spark's id of the task attempt.

    Spark counts a task's attempts anew when a stage is run again (SPARK-24552), and may let those
    of the first run go on: two have one number then.
    """
    sign = fallback_sign(name)
    return FallbackId(f"{sign}{task_attempt}", sign)


def fallback_sign(name: str) -> str:
    """
    Return the name that the brokers know once an attempt has found ``name`` in use.
    """
    return f"{name}-again"


def write_pattern(prefix: str) -> TransactionalIdPattern:
    """
    Return the names of a batch write's tasks.
    """
    return TransactionalIdPattern(prefix, _TASK)


def fence_id(prefix: str, write: str) -> str:
    """
    Return the name that the brokers know once the write has ended; ``write`` tells it from others.
    """
    return f"{prefix}-ended-{write}"


def stream_task_id(prefix: str, query: str, batch: int, task: int, attempt: int) -> str:
    """
    Return the name of one attempt of a micro-batch's task.

    The next batch has other names, and the one after it the same again: names stay few, and an
    attempt that lost, but begins late, fences none of the next batch.
    """
    return f"{micro_batch_id_prefix(prefix, query, batch)}{task}-{attempt}"


def micro_batch_id_prefix(prefix: str, query: str, batch: int) -> str:
    """
    Return what the names of a micro-batch's tasks begin with.
    """
    return f"{prefix}-{query[:_ID_LENGTH]}-{batch % 2}-"


def query_pattern(prefix: str, query: str) -> TransactionalIdPattern:
    """
    Return the names of a query's tasks.
    """
    return TransactionalIdPattern(f"{prefix}-{query[:_ID_LENGTH]}", _TURN + _TASK)


def any_query_pattern(prefix: str) -> TransactionalIdPattern:
    """
    Return the names of the tasks of all queries that had the prefix.
    """
    return TransactionalIdPattern(prefix, _QUERY + _TURN + _TASK)


def prefix_pattern(prefix: str) -> TransactionalIdPattern:
    """
    Return all names that writes with the prefix make, batches and streams.
    """
    return TransactionalIdPattern(prefix, rf"({_QUERY}{_TURN})?{_TASK}|{_SIGNS}")


def starting_with_pattern(text: str) -> TransactionalIdPattern:
    """
    Return all names that begin so, also those of longer prefixes: to be looked at, never changed.
    """
    return TransactionalIdPattern(text, r"(?s:.*)")
