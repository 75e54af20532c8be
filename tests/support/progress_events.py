"""
Spark's progress events, as the JSON that its listeners get.
"""

from __future__ import annotations

import json
from typing import Any

#: Spark's phases of a new micro-batch, in milliseconds.
NEW_BATCH = {"triggerExecution": 1500, "latestOffset": 300, "walCommit": 100, "addBatch": 1000}
#: The phases of a micro-batch that an earlier run had planned.
REPLAYED_BATCH = {"triggerExecution": 1500, "getBatch": 5, "addBatch": 1000}


def progress(
    end: dict[str, Any] | str,
    *,
    start: dict[str, Any] | None = None,
    latest: dict[str, Any] | None = None,
    batch_id: int = 0,
    query_id: str = "q",
    run_id: str = "run",
    name: str | None = "flights",
    phases: dict[str, int] = NEW_BATCH,
    rows: int = 10,
) -> str:
    """
    Return the progress of a query with one source.
    """
    source = {
        "description": "PythonMicroBatchStream",
        "startOffset": start,
        "endOffset": end,
        "latestOffset": latest,
        "numInputRows": rows,
        "inputRowsPerSecond": 5.0,
        "processedRowsPerSecond": 20.0,
    }
    fields = {
        "id": query_id,
        "runId": run_id,
        "name": name,
        "timestamp": "2026-11-24T06:41:24.345Z",
        "batchId": batch_id,
        "durationMs": phases,
        "sources": [source],
    }
    return json.dumps(fields)
