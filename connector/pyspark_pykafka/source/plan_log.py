"""
One log line for each plan of a read, since Spark's own plan shows neither topics nor offsets.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_pykafka.offsets import OffsetRange

logger = logging.getLogger("pyspark_pykafka")

_MAX_SHOWN = 10


def log_plan(ranges: Sequence[OffsetRange], filters: str = "") -> None:
    """
    Log a plan at level INFO: topics, records, ranges and filters; a long list is shortened.
    """
    if not logger.isEnabledFor(logging.INFO):
        return
    topics = ", ".join(sorted({r.tp.topic for r in ranges})) or "nothing"
    # Offset limits that a task resolves are not known yet.
    is_resolved = all(r.resolved for r in ranges)
    records = f"at most {sum(r.size for r in ranges)} records" if is_resolved else "all records"
    examples = ", ".join(map(str, ranges[:_MAX_SHOWN]))
    suffix = f" and {len(ranges) - _MAX_SHOWN} more" if len(ranges) > _MAX_SHOWN else ""
    pushed = f"; filters: {filters}" if filters else ""
    logger.info(
        "reading %s: %s in %d ranges: %s%s%s",
        topics,
        records,
        len(ranges),
        examples,
        suffix,
        pushed,
    )
