"""
`pykafka lag`: shows the lag of a query, in offsets and in time.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.cli.arguments import seconds
from pyspark_pykafka.cli.command import Command
from pyspark_pykafka.cli.output import print_json, print_table
from pyspark_pykafka.cli.progress_store import (
    add_store_arguments,
    existing_records,
    store_options,
)
from pyspark_pykafka.engines.first_contact import shared_api_timeout
from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.metrics.lag import longest_lag, total_lag
from pyspark_pykafka.metrics.store_lag import LagReader, PartitionLag
from pyspark_pykafka.metrics.unread_records import UnreadRecords
from pyspark_pykafka.source.factory import metadata_client

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from rich.table import Table

_WATCH_SECONDS = 2.0
_NO_RECORD = "A partition without a recorded offset shows '-', and is not in the total."
_HEAD = ("TOPIC", "PARTITION", "OFFSET", "END", "LAG", "BEHIND")
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def _lag(arguments: argparse.Namespace) -> int:
    options = store_options(arguments)
    reader = LagReader(metadata_client(options), UnreadRecords(options))

    def read() -> list[PartitionLag]:
        with shared_api_timeout(options.kafka):
            return reader.read(existing_records(options))

    if arguments.watch is None:
        _show(read(), arguments)
    elif arguments.json:
        watch_as_json(read, arguments.watch)
    else:
        watch_on_screen(read, arguments.watch)
    return 0


def _show(lags: list[PartitionLag], arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json(_as_json(lags))
        return
    print_table(_HEAD, [_cells(lag) for lag in lags])
    print(f"Total lag: {_total(lags)}")


def _as_json(lags: list[PartitionLag]) -> dict[str, Any]:
    return {
        "partitions": [lag._asdict() for lag in lags],
        "lag": total_lag(lag.lag for lag in lags),
        "seconds": longest_lag(lag.seconds for lag in lags),
    }


def _total(lags: list[PartitionLag], number_format: str = "") -> str:
    total = total_lag(lag.lag for lag in lags)
    return "-" if total is None else format(total, number_format)


def _cells(lag: PartitionLag) -> tuple[object, ...]:
    return (*lag[:5], None if lag.seconds is None else format_duration(lag.seconds))


def format_duration(seconds: float) -> str:
    """
    Return a readable duration: 42 s, 3 min 20 s, 5 h 10 min, 2 d 3 h.
    """
    total = int(seconds)
    if total < _MINUTE:
        return f"{total} s"
    if total < _HOUR:
        return f"{total // _MINUTE} min {total % _MINUTE} s"
    if total < _DAY:
        return f"{total // _HOUR} h {total % _HOUR // _MINUTE} min"
    return f"{total // _DAY} d {total % _DAY // _HOUR} h"


def watch_as_json(
    read: Callable[[], list[PartitionLag]], interval: float, stop: threading.Event | None = None
) -> None:
    """
    Print the lag as a line of JSON every ``interval`` seconds, until Ctrl-C or ``stop``.
    """
    stop = stop or threading.Event()
    while True:
        print(json.dumps(_as_json(read())), flush=True)
        if stop.wait(interval):
            return


def watch_on_screen(
    read: Callable[[], list[PartitionLag]],
    interval: float,
    stop: threading.Event | None = None,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """
    Show a table that is refreshed every ``interval`` seconds, until Ctrl-C or ``stop``.

    Raises :class:`OptionsError` if the package rich is not installed.
    """
    try:
        from rich.live import Live
    except ImportError as cause:
        msg = "--watch needs the package rich; use: pip install 'pyspark-pykafka[cli]'"
        raise OptionsError((msg,)) from cause
    stop = stop or threading.Event()
    lags, read_at = read(), now()
    with Live(_table(lags, None), auto_refresh=False, screen=sys.stdout.isatty()) as live:
        live.refresh()
        while not stop.wait(interval):
            earlier, earlier_at = lags, read_at
            lags, read_at = read(), now()
            rate = _offsets_between(earlier, lags) / (read_at - earlier_at)
            live.update(_table(lags, rate), refresh=True)


def _table(lags: list[PartitionLag], rate: float | None) -> Table:
    from rich.table import Table

    speed = "" if rate is None else f", reading {rate:,.0f} offsets a second"
    caption = f"{time.strftime('%H:%M:%S')}: total lag {_total(lags, ',')}{speed}; Ctrl-C ends"
    table = Table(*_HEAD, caption=caption, caption_justify="left")
    for partition in lags:
        table.add_row(*("-" if cell is None else str(cell) for cell in _cells(partition)))
    return table


def _offsets_between(earlier: list[PartitionLag], later: list[PartitionLag]) -> int:
    """
    Return the number of offsets that the query has read between two samples.
    """
    earlier_offsets = {lag[:2]: lag.offset for lag in earlier if lag.offset is not None}
    return sum(
        # A recorded offset moves back with 'pykafka progress set', and in a recreated topic.
        max(lag.offset - earlier_offsets[lag[:2]], 0)
        for lag in later
        if lag.offset is not None and lag[:2] in earlier_offsets
    )


def _add_lag_arguments(parser: argparse.ArgumentParser) -> None:
    add_store_arguments(parser)
    parser.epilog = f"{_NO_RECORD} {parser.epilog}"
    parser.add_argument(
        "--watch",
        type=seconds,
        nargs="?",
        const=_WATCH_SECONDS,
        metavar="SECONDS",
        help="refresh the output until Ctrl-C; without a number: every 2 seconds",
    )


LAG = Command(
    "lag",
    "Show the lag of a query: the number of unread offsets, and the age of the first.",
    _add_lag_arguments,
    _lag,
)
