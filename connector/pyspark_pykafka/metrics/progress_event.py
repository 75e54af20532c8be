"""
Spark's progress report of a finished micro-batch, parsed into values. Pure: no Spark, no I/O.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.errors import OffsetsError
from pyspark_pykafka.failures.spark_errors import connector_errors_in_text
from pyspark_pykafka.offsets import (
    INITIAL,
    TOPIC_IDS,
    Offsets,
    offset_document,
    offsets_from_json,
)
from pyspark_pykafka.source.micro_batch_stream import LOSS_COUNTS_KEY, LOST_OFFSETS_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Spark's name of the duration of the whole trigger.
TRIGGER = "triggerExecution"

#: Spark's name of the phase that determines the end of a new micro-batch.
LATEST = "latestOffset"

# Spark plans a batch in these phases. A batch that an earlier run has planned skips them.
_PLANNING = frozenset({LATEST, "walCommit"})

# An exception after a traceback: the first line that is not indented.
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)")
_ERROR_NAME = re.compile(r"\A(?:[\w$]+\.)*([\w$]*(?:Exception|Error))\b")


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """
    One Kafka source of a query in a micro-batch: its offsets, rows and rates.

    ``latest`` is None if Spark does not report the latest offsets: before Spark 4.2, and for a
    batch that an earlier run had planned. ``lost`` counts the offsets lost since the run began, and
    ``losses`` the data losses by condition.
    ``topic_ids`` are those of the end, without topics whose id is unknown.
    """

    index: int
    start: Offsets
    end: Offsets
    topic_ids: Mapping[str, str]
    latest: Offsets | None
    lost: Offsets
    losses: Mapping[str, int]
    rows: int
    input_rate: float
    processed_rate: float


@dataclass(frozen=True, slots=True)
class Batch:
    """
    A finished micro-batch; ``seconds`` holds the duration of each of Spark's phases.
    """

    query_id: str
    query_name: str
    run_id: str
    batch_id: int
    seconds: Mapping[str, float]
    sources: tuple[SourceBatch, ...]

    @property
    def was_planned_before(self) -> bool:
        """
        Whether an earlier run planned the batch and did not finish it.
        """
        return TRIGGER in self.seconds and not _PLANNING & self.seconds.keys()

    @property
    def seconds_since_planning(self) -> float:
        """
        The time between the planning of the batch and its end.
        """
        return max(self.seconds.get(TRIGGER, 0.0) - self.seconds.get(LATEST, 0.0), 0.0)


def parse_batch(text: str) -> Batch:
    """
    Parse the JSON of Spark's StreamingQueryProgress; sources other than Kafka are left out.
    """
    fields = json.loads(text)
    sources = (_source(index, document) for index, document in enumerate(fields["sources"]))
    return Batch(
        query_id=fields["id"],
        query_name=fields.get("name") or "",
        run_id=fields["runId"],
        batch_id=fields["batchId"],
        seconds={name: ms / 1000 for name, ms in fields.get("durationMs", {}).items()},
        sources=tuple(source for source in sources if source is not None),
    )


def _source(index: int, fields: Mapping[str, Any]) -> SourceBatch | None:
    end_document = offset_document(fields.get("endOffset"))
    end = _offsets(end_document)
    if end_document is None or not end:
        return None
    start_document = offset_document(fields.get("startOffset")) or end_document.get(INITIAL)
    latest_document = _latest_document(fields.get("latestOffset"))
    return SourceBatch(
        index=index,
        start=_offsets(start_document),
        end=end,
        topic_ids=_topic_ids(end_document.get(TOPIC_IDS)),
        latest=_offsets(latest_document) or None,
        lost=_offsets((latest_document or {}).get(LOST_OFFSETS_KEY)),
        losses=_counts((latest_document or {}).get(LOSS_COUNTS_KEY)),
        rows=fields.get("numInputRows", 0),
        input_rate=_rate(fields.get("inputRowsPerSecond")),
        processed_rate=_rate(fields.get("processedRowsPerSecond")),
    )


def _latest_document(value: object) -> dict[str, Any] | None:
    """
    Return the document of the latest offsets, or None if it has the keys of a checkpoint's offset:
    Spark before 4.2 reports the end of the micro-batch here, which read limits may have lowered.
    """
    document = offset_document(value)
    report_keys = {LOST_OFFSETS_KEY, LOSS_COUNTS_KEY}
    if document is None or any(key.startswith("@") and key not in report_keys for key in document):
        return None
    return document


def _offsets(document: object) -> Offsets:
    """
    Return the offsets in a document; empty if it belongs to another kind of source.
    """
    if not isinstance(document, dict):
        return {}
    try:
        return offsets_from_json(document)
    except OffsetsError:
        return {}


def _topic_ids(document: object) -> dict[str, str]:
    if not isinstance(document, dict):
        return {}
    return {topic: text for topic, text in document.items() if isinstance(text, str)}


def _counts(document: object) -> dict[str, int]:
    if not isinstance(document, dict):
        return {}
    return {name: count for name, count in document.items() if isinstance(count, int)}


def _rate(value: object) -> float:
    """
    Return a rate, or 0 where Spark could not compute it and reports text or nothing.
    """
    return float(value) if isinstance(value, int | float) else 0.0


def error_name(text: str, condition: str | None) -> str:
    """
    Return a short name of the error that ended a query: the connector's own class, Spark's
    condition, or the class at the beginning of the text.
    """
    kinds = connector_errors_in_text(text)
    if kinds:
        return kinds[0].__name__
    if condition:
        return condition
    match = _ERROR_NAME.match(text)
    return match[1] if match else "unknown"


def error_line(text: str) -> str:
    """
    Return one line for an error that ended a query: the exception of the last Python traceback in
    the text, or the first line if there is none.

    The first line of an error in a function of ``foreachBatch`` only says that a proxy failed.
    """
    raised = _RAISED.findall(text)
    return raised[-1] if raised else text.split("\n", 1)[0]
