"""
Prints the table of the metrics in docs/monitoring.md: ``python -m pyspark_pykafka.metrics``.
"""

from __future__ import annotations

import sys

from pyspark_pykafka.metrics.docs_table import metrics_table


def main() -> None:
    """
    Print the table.
    """
    sys.stdout.write(metrics_table())


if __name__ == "__main__":
    main()
