"""
Transactional ids, and the patterns that match the ids of one write, query or prefix.

All ids start with the user's prefix, for which ACLs are granted. A prefix may start with another
prefix (``etl-2`` and ``etl``), so an id belongs to a write only if the whole id matches.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.transaction_contract import FallbackId, TransactionalIdPattern

if TYPE_CHECKING:
    from collections.abc import Iterable

_TASK = r"-\d+-\d+(-again\d+)?"
_BATCH_PARITY = r"-[01]"
_QUERY = r"-[0-9a-f]{8}"
# No transaction has these ids: all that matters is whether the brokers know them.
_NOTICES = rf"-ended-[0-9a-f]+|({_QUERY}{_BATCH_PARITY})?-\d+-\d+-again"
_ID_LENGTH = 8
_ATTEMPT = re.compile(r"(?P<task>.*-\d+)-(?P<attempt>\d+)(?P<again>-again\d+)?")
# Spark fails a task after four attempts by default (spark.task.maxFailures).
_MAX_EARLIER_ATTEMPTS = 8


class OtherAttempts(NamedTuple):
    """
    The ids that other attempts of tasks would have.

    ``were_retried`` is true if some of these attempts are known to exist.

    If the brokers know one of ``notice_ids``, there are also attempts with fallback ids, which
    cannot be derived.
    """

    transactional_ids: list[str]
    notice_ids: list[str]
    were_retried: bool


def other_attempt_ids(transactional_ids: Iterable[str]) -> OtherAttempts:
    """
    Return the ids that earlier and concurrent attempts of the same tasks would have.

    A concurrent (speculative) attempt has the next number.
    """
    other_ids: list[str] = []
    notice_ids: list[str] = []
    were_retried = False
    for match in filter(None, map(_ATTEMPT.fullmatch, transactional_ids)):
        attempt, is_fallback = int(match["attempt"]), match["again"] is not None
        first = max(attempt - _MAX_EARLIER_ATTEMPTS, 0)
        all_ids = [f"{match['task']}-{number}" for number in range(first, attempt + 2)]
        other_ids += [attempt_id for attempt_id in all_ids if attempt_id != match[0]]
        notice_ids.append(fallback_notice_id(f"{match['task']}-{attempt}"))
        were_retried = were_retried or is_fallback or attempt > 0
    return OtherAttempts(other_ids, notice_ids, were_retried)


def task_transactional_id(prefix: str, task: int, attempt: int) -> str:
    """
    Return the id of one attempt of a batch write's task.
    """
    return f"{prefix}-{task}-{attempt}"


def fallback_id(transactional_id: str, task_attempt: int) -> FallbackId:
    """
    Return the ids for an attempt that finds ``transactional_id`` in use; the fallback id ends with
    Spark's task attempt id.

    Spark restarts the numbering of attempts when a stage is retried (SPARK-24552), and may keep
    attempts of the first run running: then two attempts have the same number.
    """
    notice_id = fallback_notice_id(transactional_id)
    return FallbackId(f"{notice_id}{task_attempt}", notice_id)


def fallback_notice_id(transactional_id: str) -> str:
    """
    Return the id that the brokers know once an attempt has found ``transactional_id`` in use.
    """
    return f"{transactional_id}-again"


def write_pattern(prefix: str) -> TransactionalIdPattern:
    """
    Return the pattern of the ids of a batch write's tasks.
    """
    return TransactionalIdPattern(prefix, _TASK)


def fence_id(prefix: str, write: str) -> str:
    """
    Return the id that the brokers know once a write has ended; ``write`` identifies the write.
    """
    return f"{prefix}-ended-{write}"


def stream_task_transactional_id(
    prefix: str, query: str, batch: int, task: int, attempt: int
) -> str:
    """
    Return the id of one attempt of a micro-batch's task.

    Two sets of ids alternate between batches, so ids stay few, and a late attempt of the previous
    batch fences no task of the current one.
    """
    return f"{micro_batch_transactional_id_prefix(prefix, query, batch)}{task}-{attempt}"


def micro_batch_transactional_id_prefix(prefix: str, query: str, batch: int) -> str:
    """
    Return the common prefix of the ids of a micro-batch's tasks.
    """
    return f"{prefix}-{query[:_ID_LENGTH]}-{batch % 2}-"


def query_pattern(prefix: str, query: str) -> TransactionalIdPattern:
    """
    Return the pattern of the ids of a query's tasks.
    """
    return TransactionalIdPattern(f"{prefix}-{query[:_ID_LENGTH]}", _BATCH_PARITY + _TASK)


def any_query_pattern(prefix: str) -> TransactionalIdPattern:
    """
    Return the pattern of the ids of the tasks of all queries that used the prefix.
    """
    return TransactionalIdPattern(prefix, _QUERY + _BATCH_PARITY + _TASK)


def prefix_pattern(prefix: str) -> TransactionalIdPattern:
    """
    Return the pattern of all ids that batch and streaming writes with the prefix use.
    """
    return TransactionalIdPattern(prefix, rf"({_QUERY}{_BATCH_PARITY})?{_TASK}|{_NOTICES}")


def starting_with_pattern(text: str) -> TransactionalIdPattern:
    """
    Return the pattern of all ids that start with a string, including those of longer prefixes.

    For listing only: it also matches transactions of other writes.
    """
    return TransactionalIdPattern(text, r"(?s:.*)")
