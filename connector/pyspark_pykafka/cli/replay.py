"""
`pykafka replay`: estimates the cost of reading again from a position, and moves the recorded
offsets there.
"""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from pyspark_pykafka.cli.arguments import add_execute, position
from pyspark_pykafka.cli.command import Command
from pyspark_pykafka.cli.output import print_json, print_table
from pyspark_pykafka.cli.progress_store import (
    add_store_arguments,
    existing_records,
    no_store_error,
    store_options,
)
from pyspark_pykafka.engines.first_contact import shared_api_timeout
from pyspark_pykafka.engines.selection import bytes_per_offset, wire_read_unavailable_reason
from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.offsets import TopicPartition, offsets_to_json
from pyspark_pykafka.options import Subscribe
from pyspark_pykafka.progress.factory import make_progress_store, process_name
from pyspark_pykafka.progress.record import Owner, ProgressRecord
from pyspark_pykafka.progress.store import format_topics, position_in_log
from pyspark_pykafka.schema import SOURCE_TYPES
from pyspark_pykafka.source.factory import fetch_settings, metadata_client
from pyspark_pykafka.source.offset_limits import offsets_at

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Mapping

    from pyspark_pykafka.offsets import Offsets
    from pyspark_pykafka.options import SourceOptions

_SCHEMA = pa.schema([("offset", SOURCE_TYPES["offset"])])
_SAMPLES = 3
_KIB = 1024


class Replay(NamedTuple):
    """
    The offsets to read again, [start, end) of each partition, and the recorded offsets.

    The end is the recorded offset. If the topic was recreated since, it is the log's start; if the
    log was truncated, it is the log's end. No start lies beyond the end, since later records have
    not been read yet. A partition without a recorded offset is left out. Without a store
    ``recorded`` is None, and the end is the end of the log.
    """

    starts: Offsets
    ends: Offsets
    recorded: Offsets | None
    topic_ids: Mapping[str, str]

    def offset_count(self, tp: TopicPartition) -> int:
        """
        Return the number of offsets to read again in a partition.
        """
        return max(self.ends[tp] - self.starts[tp], 0)

    @property
    def total_offset_count(self) -> int:
        """
        The number of offsets to read again in all partitions.
        """
        return sum(map(self.offset_count, self.starts))


def _replay(arguments: argparse.Namespace) -> int:
    has_store = arguments.group is not None or arguments.zookeeper is not None
    if not has_store and not arguments.topic:
        msg = "no topics are given; use --group, --zookeeper or --topic"
        raise OptionsError((msg,))
    if arguments.execute and not has_store:
        msg = "--execute moves recorded offsets; it needs --group or --zookeeper"
        raise OptionsError((msg,))
    options = store_options(arguments)
    with shared_api_timeout(options.kafka):
        replay = _plan(arguments, options, has_store=has_store)
    byte_count = _estimate_bytes(replay, options)
    if arguments.execute:
        _move(options, replay)
    if arguments.json:
        print_json(_as_json(replay, byte_count, executed=arguments.execute))
    else:
        _show(replay, byte_count)
        _show_next_step(replay, executed=arguments.execute)
    return 0


def _plan(arguments: argparse.Namespace, options: SourceOptions, *, has_store: bool) -> Replay:
    client = metadata_client(options)
    records = existing_records(options) if has_store else None
    topics = set(arguments.topic) or {tp.topic for tp in records or ()}
    assignment = client.assignment(Subscribe(tuple(sorted(topics))))
    tps = assignment.partitions
    starts = offsets_at(dict.fromkeys(tps, arguments.start), client)
    log_starts, log_ends = client.log_start_offsets(tps), client.end_offsets(tps)
    starts = {
        tp: min(max(start, log_starts[tp]), log_ends[tp])
        for tp, start in starts.items()
        if tp in log_starts and tp in log_ends
    }
    if records is None:
        return Replay(starts, {tp: log_ends[tp] for tp in starts}, None, assignment.topic_ids)
    positions = {
        tp: position_in_log(record, assignment.topic_ids.get(tp.topic), log_starts[tp])
        for tp, record in records.items()
        if tp in starts
    }
    _check_topics_have_records(arguments.topic, positions, options)
    ends = {tp: min(position, log_ends[tp]) for tp, position in positions.items()}
    starts = {tp: min(starts[tp], end) for tp, end in ends.items()}
    recorded = {tp: records[tp].offset for tp in positions}
    return Replay(starts, ends, recorded, assignment.topic_ids)


def _check_topics_have_records(
    topics: Collection[str], recorded: Collection[TopicPartition], options: SourceOptions
) -> None:
    if missing := set(topics) - {tp.topic for tp in recorded}:
        raise no_store_error(options, f" of {format_topics(missing)}")


def _estimate_bytes(replay: Replay, options: SourceOptions) -> int | None:
    """
    Return an estimate of the bytes to read again, or None if the engine cannot estimate them.
    """
    if wire_read_unavailable_reason(options.kafka) is not None:
        return None
    settings = fetch_settings(options, _SCHEMA)
    total = 0.0
    for sample in range(_SAMPLES):
        positions = {
            tp: start + replay.offset_count(tp) * sample // _SAMPLES
            for tp, start in replay.starts.items()
            if replay.offset_count(tp)
        }
        densities = bytes_per_offset(positions, settings) if positions else {}
        total += sum(densities.get(tp, 0.0) * replay.offset_count(tp) for tp in positions)
    return round(total / _SAMPLES)


def _move(options: SourceOptions, replay: Replay) -> None:
    with closing(make_progress_store(options)) as store:
        owner = Owner("pykafka replay", process_name(), 0)
        new_owner = store.claim(owner, {tp.topic for tp in replay.starts}).owner
        ids = replay.topic_ids
        store.write(
            {
                tp: ProgressRecord(start, new_owner, topic_id=ids.get(tp.topic))
                for tp, start in replay.starts.items()
            }
        )


def _as_json(replay: Replay, byte_count: int | None, *, executed: bool) -> dict[str, Any]:
    return {
        "startingOffsets": offsets_to_json(replay.starts),
        "endingOffsets": offsets_to_json(replay.ends),
        "offsets": replay.total_offset_count,
        "bytes": byte_count,
        "executed": executed,
    }


def _show(replay: Replay, byte_count: int | None) -> None:
    recorded = replay.recorded or {}
    rows = [
        (*tp, recorded.get(tp), start, replay.ends[tp], replay.offset_count(tp))
        for tp, start in sorted(replay.starts.items())
    ]
    print_table(("TOPIC", "PARTITION", "RECORDED", "START", "END", "OFFSETS"), rows)
    size = (
        "of unknown size" if byte_count is None else f"about {format_bytes(byte_count)} in the log"
    )
    print(f"To read again: at most {replay.total_offset_count:,} records, {size}.")


def _show_next_step(replay: Replay, *, executed: bool) -> None:
    if replay.recorded is None:
        starts, ends = (
            json.dumps(offsets_to_json(offsets)) for offsets in (replay.starts, replay.ends)
        )
        print(f"Read them with startingOffsets={starts}")
        print(f"           and endingOffsets={ends}")
    elif executed:
        print(
            "Changed. A query with startingOffsets=committed and a new checkpointLocation starts "
            "there; with its old checkpoint it continues where it left off."
        )
    else:
        print("Dry run: nothing was changed. Use --execute to move the recorded offsets to START.")


def format_bytes(count: int) -> str:
    """
    Return a readable number of bytes.
    """
    if count < _KIB:
        return f"{count} B"
    size, unit = count / _KIB, "KiB"
    for larger_unit in ("MiB", "GiB", "TiB"):
        if size < _KIB:
            break
        size, unit = size / _KIB, larger_unit
    return f"{size:.1f} {unit}"


def _add_replay_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="start",
        type=position,
        required=True,
        metavar="POSITION",
        help="the start: --from='-2 hours', a time with a zone, an offset, earliest",
    )
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        help="a topic to read again; default: all topics of the store",
    )
    add_store_arguments(parser, required=False)
    add_execute(parser)


REPLAY = Command(
    "replay",
    "Estimate the cost of reading again from a position; move a query's recorded offsets there.",
    _add_replay_arguments,
    _replay,
)
