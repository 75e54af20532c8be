"""
The metrics of a query as one line of the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.metrics.progress_event import TRIGGER

if TYPE_CHECKING:
    from pyspark_pykafka.metrics.snapshot import QuerySnapshot


def log_line(query: QuerySnapshot) -> str:
    """
    Return the state of a query after its last micro-batch.
    """
    seconds = query.last_seconds.get(TRIGGER, 0.0)
    rate = sum(source.processed_rate for source in query.sources)
    parts = [f"micro-batch {query.batch_id} took {seconds:.3f} s, {rate:.0f} rows/s", _lag(query)]
    counts = (
        ("replayed batches", query.replays),
        ("lost offsets", query.lost),
        ("data losses", sum(query.losses.values())),
        ("dead letters", query.dead_letter_count),
        ("failures", sum(query.failures.values())),
    )
    parts += [f"{name}: {count}" for name, count in counts if count]
    return f"query {query.name or query.id}: {'; '.join(parts)}"


def _lag(query: QuerySnapshot) -> str:
    if query.lag is None:
        return "lag unknown"
    seconds = "" if query.lag_seconds is None else f", {query.lag_seconds:.1f} s"
    return f"lag {query.lag} offsets{seconds}"
