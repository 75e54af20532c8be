"""
`pykafka peek`: shows records of a topic.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from pyspark_pykafka.cli.arguments import (
    add_brokers,
    add_settings,
    position,
    read_options,
    registry_options,
    whole_number,
)
from pyspark_pykafka.cli.command import Command
from pyspark_pykafka.cli.decoded_records import (
    DECODED_FORMATS,
    JSON,
    decoded_format,
    json_document,
    json_values,
)
from pyspark_pykafka.cli.followed_topic import FollowedTopic
from pyspark_pykafka.cli.output import bytes_to_json, printable
from pyspark_pykafka.cli.record_counts import first_records, last_records, ranges_between
from pyspark_pykafka.engines.first_contact import shared_api_timeout
from pyspark_pykafka.engines.metadata import MetadataClient
from pyspark_pykafka.engines.selection import fetch_many, metadata_backend
from pyspark_pykafka.errors import DataLossError, OffsetsError, OptionsError, UnknownTopicError
from pyspark_pykafka.formats.record_decoder import decode_records
from pyspark_pykafka.options import Subscribe, parse_stream_source
from pyspark_pykafka.options.positions import EPOCH, first_millisecond
from pyspark_pykafka.schema import SOURCE_TYPES, TIMESTAMP_MS
from pyspark_pykafka.source.factory import fetch_settings
from pyspark_pykafka.source.offset_limits import offsets_at
from pyspark_pykafka.timestamps import NO_TIMESTAMP, format_timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_pykafka.engines.contract import FetchSettings
    from pyspark_pykafka.formats.read_format import ReadFormat
    from pyspark_pykafka.offsets import OffsetRange, Offsets, TopicPartition
    from pyspark_pykafka.options import SourceOptions

    Record = dict[str, Any]

_MAX_RECORDS = 10
_MAX_HEADERS = 10
_POLL_SECONDS = 0.5
_SCHEMA = pa.schema([*{**SOURCE_TYPES, "timestamp": TIMESTAMP_MS}.items()])


class _Topic(NamedTuple):
    """
    The selected partitions of a topic, and the settings and the format to read them with.

    ``json_columns`` names the columns, key or value, that are shown as JSON documents.
    """

    client: MetadataClient
    settings: FetchSettings
    topic_id: str | None
    tps: tuple[TopicPartition, ...]
    format: ReadFormat | None
    json_columns: tuple[str, ...]

    def read(
        self, ranges: list[OffsetRange], max_records: int | None = None
    ) -> Iterator[tuple[OffsetRange, Record]]:
        """
        Yield the first records of each range, or all of them; the ranges are interleaved.

        Raises :class:`DataLossError` if the topic does not have the id any more.
        """
        planned = [replace(r, topic_id=self.topic_id) for r in ranges]
        for offset_range, fetched in fetch_many(planned, self.settings, max_records):
            for batch in self._decoded(offset_range.tp, fetched):
                for record in self._records(batch):
                    yield offset_range, record

    def _records(self, batch: pa.RecordBatch) -> Iterator[Record]:
        names = batch.schema.names
        columns = [
            json_values(column) if name in {"key", "value"} else column.to_pylist()
            for name, column in zip(names, batch.columns, strict=True)
        ]
        for row in zip(*columns, strict=True):
            yield self._with_documents(dict(zip(names, row, strict=True)))

    def _with_documents(self, record: Record) -> Record:
        """
        Return a record with parsed JSON documents; the bytes of an invalid one stay, with a note.
        """
        notes = [record["_error"]] if record.get("_error") is not None else []
        for name in self.json_columns:
            if record[name] is None:
                continue
            try:
                record[name] = json_document(record[name])
            except ValueError as error:
                notes.append(f"{name} is not JSON: {error}")
        return {**record, "_error": "; ".join(notes) or None}

    def _decoded(self, tp: TopicPartition, fetched: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self.format is None:
            return iter((fetched,))
        return decode_records(iter((fetched,)), tp, self.format, self.settings)


def _options(arguments: argparse.Namespace) -> SourceOptions:
    return parse_stream_source(
        {
            **read_options(arguments),
            "subscribe": arguments.topic,
            "includeHeaders": "true",
            **_format_options(arguments),
        }
    )


def _open(arguments: argparse.Namespace, options: SourceOptions) -> _Topic:
    backend = metadata_backend(options.kafka, options.isolation_level, options.engine)
    client = MetadataClient(backend, options.fetch_offset_retry)
    assignment = client.assignment(Subscribe((arguments.topic,)))
    tps, topic_id = assignment.partitions, assignment.topic_ids.get(arguments.topic)
    partitions = tuple(tp for tp in tps if arguments.partition in (None, tp.partition))
    if not partitions:
        msg = f"--partition is {arguments.partition}; it must be: less than {len(tps)}"
        raise OptionsError((msg,))
    format_ = decoded_format(options)
    schema = _SCHEMA if format_ is None else format_.record_schema
    json_columns = tuple(name for name, kind in _formats(arguments).items() if kind == JSON)
    settings = fetch_settings(options, schema)
    return _Topic(client, settings, topic_id, partitions, format_, json_columns)


def _formats(arguments: argparse.Namespace) -> dict[str, str]:
    """
    Return the formats that the arguments name, by column.
    """
    formats = {"key": arguments.key_format, "value": arguments.value_format}
    return {name: kind for name, kind in formats.items() if kind is not None}


def _format_options(arguments: argparse.Namespace) -> dict[str, str]:
    """
    Return the options for decoding; they are those of a query.
    """
    formats = _formats(arguments)
    format_options = {
        f"{name}Format": kind for name, kind in formats.items() if kind in DECODED_FORMATS
    }
    options = {**format_options, **dict(arguments.option)}
    if not format_options:
        if options:
            remedy = (
                "leave it out: JSON is shown without a schema"
                if formats
                else "set --value-format or --key-format, too"
            )
            raise OptionsError((f"--option is {next(iter(options))}=...; {remedy}",))
        return {}
    if format_options.get("valueFormat") == "debezium-avro":
        # Each record is shown, whereas a query drops tombstones by default.
        options = {"debeziumTombstones": "keep", **options}
    # A bad record is shown with its bytes, and the others are decoded.
    return {**registry_options(arguments), **options, "onBadRecord": "rescue"}


def _peek(arguments: argparse.Namespace) -> int:
    options = _options(arguments)
    with shared_api_timeout(options.kafka):
        topic = _open(arguments, options)
        starts, ends = _limits(topic, arguments)
    show = partial(_print, arguments=arguments)
    if arguments.last is not None or not arguments.follow:
        for record in _sample(topic, starts, ends, arguments):
            show(record)
    if arguments.follow:
        positions = starts if arguments.last is None else ends
        followed = FollowedTopic(
            topic.client,
            arguments.topic,
            topic.topic_id,
            positions,
            partition=arguments.partition,
            on_event=_print_event,
        )
        _follow(topic, followed, ends, show)
    return 0


def _print_event(line: str) -> None:
    print(f"pykafka peek: {line}", file=sys.stderr, flush=True)


def _sample(
    topic: _Topic, starts: Offsets, ends: Offsets, arguments: argparse.Namespace
) -> list[Record]:
    """
    Return the first records of all partitions, or the last ones of each, ordered by timestamp.
    """
    if arguments.last is None:
        count = arguments.max or _MAX_RECORDS
        found = (record for _, record in first_records(topic.read, starts, ends, count))
        return heapq.nsmallest(count, found, _time_and_position)
    found = (record for _, record in last_records(topic.read, starts, ends, arguments.last))
    if arguments.max is None or arguments.follow:
        return sorted(found, key=_time_and_position)
    return heapq.nlargest(arguments.max, found, _time_and_position)[::-1]


def _limits(topic: _Topic, arguments: argparse.Namespace) -> tuple[Offsets, Offsets]:
    """
    Return the first offset to show and the current end, for each partition.

    With `--last` the first offset is the log's start.
    """
    log_start, ends = topic.client.log_start_offsets(topic.tps), topic.client.end_offsets(topic.tps)
    if arguments.from_position is not None:
        starts = offsets_at(dict.fromkeys(topic.tps, arguments.from_position), topic.client)
    elif arguments.from_end:
        starts = ends
    elif arguments.from_offset is not None:
        starts = dict.fromkeys(topic.tps, arguments.from_offset)
    elif arguments.from_time is not None:
        milliseconds = first_millisecond(arguments.from_time)
        offsets = topic.client.offsets_for_times(dict.fromkeys(topic.tps, milliseconds))
        starts = {tp: ends[tp] if offset is None else offset for tp, offset in offsets.items()}
    else:
        starts = log_start
    return {tp: max(offset, log_start[tp]) for tp, offset in starts.items()}, ends


def _follow(
    topic: _Topic,
    followed: FollowedTopic,
    ends: Offsets,
    show: Callable[[Record], None],
    *,
    stop: threading.Event | None = None,
) -> None:
    """
    Show records as they arrive, until Ctrl-C or `stop`.
    """
    stop = stop or threading.Event()
    while True:
        try:
            topic = topic._replace(topic_id=followed.topic_id)
            for offset_range, record in topic.read(ranges_between(followed.positions, ends)):
                show(record)
                followed.record_shown(offset_range.tp, record["offset"])
        except (DataLossError, OffsetsError, UnknownTopicError):
            # The topic may have been deleted meanwhile.
            if not followed.refresh():
                raise
        else:
            followed.advance(ends)
        if stop.wait(_POLL_SECONDS):
            return
        followed.refresh()
        ends = followed.ends()


def _time_and_position(record: Record) -> tuple[int, int, int]:
    return record["timestamp"], record["partition"], record["offset"]


def _print(record: Record, arguments: argparse.Namespace) -> None:
    time = _time(record["timestamp"])
    to_text = bytes.hex if arguments.hex else printable
    if arguments.json:
        to_json = bytes.hex if arguments.hex else bytes_to_json
        headers = [
            [header["key"], _convert_bytes(header["value"], to_json)]
            for header in record["headers"] or []
        ]
        document = {
            "partition": record["partition"],
            "offset": record["offset"],
            "timestamp": time,
            "key": _convert_bytes(record["key"], to_json),
            "value": _convert_bytes(record["value"], to_json),
            "headers": headers,
        }
        if record.get("_error") is not None:
            document["error"] = record["_error"]
        if record.get("_raw") is not None:
            document["raw"] = _convert_bytes(record["_raw"], to_json)
        print(json.dumps(document, default=to_json), flush=True)
        return
    cells = [
        f"{record['partition']}@{record['offset']}",
        time or "-",
        "-" if record["key"] in (None, b"") else _cell(record["key"], to_text),
        _cell(record["value"], to_text),
    ]
    if record.get("_error") is not None:
        note = printable(record["_error"].encode())
        cells.append(f"{note}: {_cell(raw, to_text)}" if (raw := record.get("_raw")) else note)
    cells += [
        f"{printable(header['key'].encode())}={_cell(header['value'], to_text)}"
        for header in islice(record["headers"] or [], _MAX_HEADERS)
    ]
    print("  ".join(cells), flush=True)


def _time(milliseconds: int) -> str | None:
    if milliseconds == NO_TIMESTAMP:
        return None
    return format_timestamp(milliseconds, "milliseconds")


def _convert_bytes(data: Any, convert: Callable[[bytes], Any]) -> Any:
    """
    Return bytes converted, and a decoded value as it is.
    """
    return convert(data) if isinstance(data, bytes) else data


def _cell(data: Any, convert: Callable[[bytes], str]) -> str:
    """
    Return bytes as text, and a decoded value as JSON in one line.
    """
    if isinstance(data, bytes):
        return convert(data)
    text = json.dumps(data, default=convert, ensure_ascii=False)
    # JSON may contain half of a surrogate pair, which UTF-8 cannot encode.
    return printable(text.encode(errors="backslashreplace"))


def _add_peek_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partition", type=int, help="the partition to read; default: all")
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--from",
        dest="from_position",
        type=position,
        metavar="POSITION",
        help="the start: an offset, --from='-10 minutes', --from=-100, or a time with a zone",
    )
    start.add_argument(
        "--from-offset",
        type=int,
        metavar="N",
        help="the first offset to show; default: the log's start",
    )
    start.add_argument(
        "--from-time", type=_instant, metavar="TIME", help="such as 2026-11-24T09:00:00+01:00"
    )
    start.add_argument("--from-end", action="store_true", help="only new records; with --follow")
    start.add_argument(
        "--last", type=whole_number(1), metavar="N", help="the last N records of each partition"
    )
    parser.add_argument(
        "--max",
        type=whole_number(1),
        metavar="N",
        help="the number of records, without --follow; default: 10, or all of --last",
    )
    parser.add_argument("--follow", action="store_true", help="show new records until Ctrl-C")
    parser.add_argument("--hex", action="store_true", help="show keys and values in hexadecimal")
    for column in ("value", "key"):
        parser.add_argument(
            f"--{column}-format",
            choices=(JSON, *DECODED_FORMATS),
            help=f"decode the {column}, as a query does; {JSON} needs no schema",
        )
    add_settings(
        parser,
        "--option",
        "an option for decoding, such as schema.registry.url=http://registry:8081",
    )
    add_brokers(parser)
    parser.add_argument("--json", action="store_true", help="print a JSON object for each record")


def _instant(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as cause:
        msg = f"{text!r} is not valid; it must be a time such as 2026-11-24T09:00:00+01:00"
        raise argparse.ArgumentTypeError(msg) from cause
    if time.tzinfo is None:
        time = _in_local_zone(time)
    if time < EPOCH:
        msg = f"{text!r} is not valid; it must be: 1970 or later"
        raise argparse.ArgumentTypeError(msg)
    return time


def _in_local_zone(time: datetime) -> datetime:
    try:
        return time.astimezone()
    except (ValueError, OverflowError):
        # In year 1 or 9999 the time in the local zone may be outside of Python's range of dates.
        return time.replace(tzinfo=UTC)


PEEK = Command(
    "peek",
    "Show records of a topic.",
    _add_peek_arguments,
    _peek,
)
