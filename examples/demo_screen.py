"""
The output of the demo: a progress bar with the measured rate for each step, and a table of results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from pyspark.sql import Row
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

console = Console()


class Rate(ProgressColumn):
    """
    A progress column with the records per second of a step.
    """

    def render(self, task: Task) -> Text:
        """
        Return the measured rate, which stays after the step has ended.
        """
        seconds = task.finished_time or task.elapsed or 1
        return Text(f"{task.completed / seconds:,.0f} records/s")


@contextmanager
def step(label: str, downloads: Path | None = None) -> Iterator[None]:
    """
    Show a step of the set-up with its duration, and how many MB have been downloaded to a folder.
    """
    columns = (SpinnerColumn(finished_text="-"), TextColumn("{task.description}"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        task, done = progress.add_task(label, total=1), Event()
        before = megabytes(downloads)

        def follow() -> None:
            while not done.wait(0.5):
                downloaded = megabytes(downloads) - before
                if downloaded >= 1:
                    progress.update(task, description=f"{label}: {downloaded:.0f} MB downloaded")

        with ThreadPoolExecutor(1) as pool:
            following = pool.submit(follow)
            try:
                yield
            finally:
                done.set()
            following.result()
        progress.update(task, completed=1)


def megabytes(folder: Path | None) -> float:
    """
    Return the size of the jars in a folder in MB; a jar may be renamed while they are counted.
    """
    if folder is None:
        return 0.0
    return sum(path.stat().st_size for path in folder.rglob("*.jar") if path.exists()) / 1e6


def bars() -> Progress:
    """
    Return the progress display of all steps.
    """
    label, count = TextColumn("{task.description}"), MofNCompleteColumn()
    return Progress(label, BarColumn(20), count, Rate(), TimeElapsedColumn(), console=console)


@contextmanager
def watched(
    progress: Progress, label: str, total: int, count_records: Callable[[], int]
) -> Iterator[None]:
    """
    Update a progress bar five times a second while the body runs.
    """
    step, done = progress.add_task(label, total=total), Event()

    def follow() -> None:
        while not done.wait(0.2):
            progress.update(step, completed=count_records())

    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(follow)
        try:
            yield
        finally:
            done.set()
        following.result()
    progress.update(step, completed=count_records())


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
