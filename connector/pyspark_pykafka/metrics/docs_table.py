"""
The table of the metrics in docs/monitoring.md.
"""

from __future__ import annotations

from pyspark_pykafka.metrics.table import METRICS


def metrics_table() -> str:
    """
    Return the table as Markdown.
    """
    rows = [
        f"| `{metric.name}` | {metric.kind.value} | {', '.join(metric.labels)} | "
        f"{metric.description} |"
        for metric in METRICS
    ]
    return "\n".join(["| Metric | Kind | Labels | |", "| --- | --- | --- | --- |", *rows]) + "\n"
