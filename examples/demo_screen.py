"""
What the demo shows: a bar for each step with its measured rate, and the table of results.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pyspark.sql import Row
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

DEADLINE = 600.0
console = Console()


class Rate(ProgressColumn):
    """
    Records per second since the step began.
    """

    def render(self, task: Task) -> Text:
        """
        Return the measured rate, which stays when the step has ended.
        """
        return Text(f"{task.completed / (task.elapsed or 1):,.0f} records/s")


def bars() -> Progress:
    """
    Return the frame for the bars of all steps.
    """
    label, count = TextColumn("{task.description}"), MofNCompleteColumn()
    return Progress(label, BarColumn(20), count, Rate(), TimeElapsedColumn(), console=console)


def watch(
    progress: Progress,
    label: str,
    total: int,
    counted: Callable[[], int],
    ended: Callable[[], bool],
) -> None:
    """
    Move a bar on until the work has ended; `ended` waits a moment for that before it answers.
    """
    step = progress.add_task(label, total=total)
    latest = time.monotonic() + DEADLINE
    while not ended():
        if time.monotonic() > latest:
            msg = f"'{label}' did not end within {DEADLINE:g} s; it counted {counted():,} records"
            raise TimeoutError(msg)
        progress.update(step, completed=counted())
    progress.update(step, completed=counted())


def show(statistics: list[Row], names: dict[str, str]) -> None:
    """
    Print the statistics as a table, the airline with the most flights first.
    """
    table = Table("Airline", title="Delays on arrival, read from the topic flight_stats")
    for heading in ("Flights", "Mean, minutes", "Worst, hours"):
        table.add_column(heading, justify="right")
    for row in statistics:
        mean, worst = f"{row.delay / row.arrived:.1f}", f"{row.worst / 60:.1f}"
        table.add_row(names[row.carrier], f"{row.flights:,}", mean, worst)
    console.print(table)
