"""
`pykafka lag`: shows the lag of a query, in offsets and in seconds.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from pyspark_pykafka.cli.arguments import seconds
from pyspark_pykafka.cli.command import Command
from pyspark_pykafka.cli.output import print_json, print_table
from pyspark_pykafka.cli.progress_store import (
    add_store_arguments,
    existing_records,
    store_options,
)
from pyspark_pykafka.engines.selection import fetch
from pyspark_pykafka.errors import AuthorizationError, OptionsError
from pyspark_pykafka.offsets import OffsetRange, TopicPartition
from pyspark_pykafka.progress.store import is_recreated
from pyspark_pykafka.schema import TIMESTAMP_MS
from pyspark_pykafka.source.factory import fetch_settings, metadata_client
from pyspark_pykafka.timestamps import NO_TIMESTAMP

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from rich.table import Table

    from pyspark_pykafka.engines.contract import FetchSettings
    from pyspark_pykafka.options import SourceOptions

_SCHEMA = pa.schema([("timestamp", TIMESTAMP_MS)])
# Only one record of each partition is needed.
_MEMORY_BYTES = 1 << 20
_WATCH_SECONDS = 2.0
_NO_RECORD = "A partition without a recorded offset shows '-', and is not in the total."
_HEAD = ("TOPIC", "PARTITION", "OFFSET", "END", "LAG", "BEHIND")
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


class PartitionLag(NamedTuple):
    """
    The lag of a partition. Values that are not recorded or not known are None.

    ``lag`` counts from the recorded ``offset``, or from the log's start if the topic was deleted
    and recreated since; it is not negative. ``seconds`` is the age of the first record that the
    query has not read.
    """

    topic: str
    partition: int
    offset: int | None
    end: int
    lag: int | None
    seconds: float | None


class LagReader:
    """
    Reads the lag of a query repeatedly.
    """

    def __init__(self, options: SourceOptions, now: Callable[[], float] = time.time) -> None:
        self._options = options
        self._client = metadata_client(options)
        settings = fetch_settings(options, _SCHEMA)
        self._settings: FetchSettings | None = replace(
            settings, memory_bytes=_MEMORY_BYTES, fail_on_data_loss=False
        )
        self._now = now

    def read(self) -> list[PartitionLag]:
        """
        Return the lag of each partition of the topics in the store.

        Errors of the store and of the brokers are raised, but a missing permission to read records
        only leaves out the seconds.
        """
        records = existing_records(self._options)
        existing = self._client.existing({tp.topic for tp in records})
        tps, ids = existing.partitions, existing.topic_ids
        ends, log_starts = self._client.end_offsets(tps), self._client.log_start_offsets(tps)
        lags = []
        for tp in sorted(ends):
            if tp not in records:
                lags.append(PartitionLag(*tp, None, ends[tp], None, None))
                continue
            log_start, offset = log_starts.get(tp, 0), records[tp].offset
            # A recorded offset is not an offset of the topic that took the name later.
            unread = log_start if is_recreated(records[tp], ids.get(tp.topic)) else offset
            seconds_behind = self._seconds_behind(tp, max(unread, log_start), ends[tp])
            lag = max(ends[tp] - unread, 0)
            lags.append(PartitionLag(*tp, offset, ends[tp], lag, seconds_behind))
        return lags

    def _seconds_behind(self, tp: TopicPartition, start: int, end: int) -> float | None:
        if start >= end:
            return 0.0
        if self._settings is None:
            return None
        try:
            batches = fetch(OffsetRange(tp, start, end), self._settings)
            first = next((batch for batch in batches if batch.num_rows), None)
        except AuthorizationError as error:
            print(f"pykafka lag: no seconds are shown: {error}", file=sys.stderr)
            self._settings = None
            return None
        if first is None:
            # Only gaps are left: control records, or records that compaction has removed.
            return 0.0
        milliseconds: int = first.column(0)[0].as_py()
        if milliseconds == NO_TIMESTAMP:
            return None
        return max(self._now() - milliseconds / 1000, 0.0)


def total_lag(lags: list[PartitionLag]) -> int:
    """
    Return the number of offsets that the query has not read, in the partitions with a record.
    """
    return sum(each.lag for each in lags if each.lag is not None)


def _lag(arguments: argparse.Namespace) -> int:
    reader = LagReader(store_options(arguments))
    if arguments.watch is None:
        _show(reader.read(), arguments)
    elif arguments.json:
        watch_as_json(reader, arguments.watch)
    else:
        watch_on_screen(reader, arguments.watch)
    return 0


def _show(lags: list[PartitionLag], arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json(_as_json(lags))
        return
    print_table(_HEAD, [_cells(lag) for lag in lags])
    print(f"Total lag: {total_lag(lags)}")


def _as_json(lags: list[PartitionLag]) -> dict[str, Any]:
    return {
        "partitions": [lag._asdict() for lag in lags],
        "lag": total_lag(lags),
        "seconds": max((lag.seconds for lag in lags if lag.seconds is not None), default=None),
    }


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


def watch_as_json(reader: LagReader, interval: float, stop: threading.Event | None = None) -> None:
    """
    Print a line of JSON every ``interval`` seconds, until Ctrl-C or ``stop``.
    """
    stop = stop or threading.Event()
    while True:
        print(json.dumps(_as_json(reader.read())), flush=True)
        if stop.wait(interval):
            return


def watch_on_screen(
    reader: LagReader,
    interval: float,
    stop: threading.Event | None = None,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """
    Show a table that changes every ``interval`` seconds, until Ctrl-C or ``stop``.
    """
    try:
        from rich.live import Live
    except ImportError as cause:
        msg = "--watch needs the package rich; use: pip install 'pyspark-pykafka[cli]'"
        raise OptionsError((msg,)) from cause
    stop = stop or threading.Event()
    lags, read_at = reader.read(), now()
    with Live(_table(lags, None), auto_refresh=False, screen=sys.stdout.isatty()) as live:
        live.refresh()
        while not stop.wait(interval):
            earlier, earlier_at = lags, read_at
            lags, read_at = reader.read(), now()
            rate = _offsets_between(earlier, lags) / (read_at - earlier_at)
            live.update(_table(lags, rate), refresh=True)


def _table(lags: list[PartitionLag], rate: float | None) -> Table:
    from rich.table import Table

    speed = "" if rate is None else f", reading {rate:,.0f} offsets a second"
    caption = f"{time.strftime('%H:%M:%S')}: total lag {total_lag(lags):,}{speed}; Ctrl-C ends"
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
        help="refresh the output until Ctrl-C; default: every 2 seconds",
    )


LAG = Command(
    "lag",
    "Show the lag of a query: the number of unread offsets, and the age of the first.",
    _add_lag_arguments,
    _lag,
)
