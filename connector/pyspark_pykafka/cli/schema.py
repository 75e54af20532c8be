"""
`pykafka schema`: infers the schema of a topic's JSON.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_pykafka.cli.arguments import (
    add_brokers,
    add_json,
    position,
    read_options,
    whole_number,
)
from pyspark_pykafka.cli.command import Action, Command, add_actions, run_action
from pyspark_pykafka.cli.output import print_json, printable
from pyspark_pykafka.cli.record_counts import first_records, last_records
from pyspark_pykafka.engines.first_contact import shared_api_timeout
from pyspark_pykafka.engines.metadata import MetadataClient
from pyspark_pykafka.engines.selection import fetch_many, metadata_backend
from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.formats.json_inference import InvalidJsonError, JsonSample
from pyspark_pykafka.options import Subscribe, parse_stream_source
from pyspark_pykafka.schema import SOURCE_TYPES
from pyspark_pykafka.source.factory import fetch_settings
from pyspark_pykafka.source.offset_limits import offsets_at

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pyspark_pykafka.engines.contract import FetchSettings
    from pyspark_pykafka.formats.json_inference import InferredField
    from pyspark_pykafka.offsets import OffsetRange, TopicPartition

_MAX_RECORDS = 1000
# The zero byte and the schema's id, which registry serializers write before the text.
_PREFIX_BYTES = 5


@dataclass(slots=True)
class _Inference:
    """
    The sample of a topic, and the numbers of records that it could not use.
    """

    sample: JsonSample = field(default_factory=JsonSample)
    records: int = 0
    empty: int = 0
    bad: int = 0
    first_bad: str = ""

    def add(self, tp: TopicPartition, offset: int, text: bytes | None) -> None:
        self.records += 1
        if text is not None and text[:1] == b"\0":
            text = text[_PREFIX_BYTES:]
        if not text or not text.strip():
            self.empty += 1
            return
        try:
            self.sample.add(text)
        except InvalidJsonError:
            self.bad += 1
            self.first_bad = self.first_bad or f"{tp} at offset {offset}"


def _infer(arguments: argparse.Namespace) -> int:
    inference = _Inference()
    for tp, offset, text in _records(arguments):
        inference.add(tp, offset, text)
        if inference.records == arguments.max:
            break
    if not inference.sample.kinds:
        msg = (
            f"no JSON was found in {inference.records} records of '{arguments.topic}' "
            f"({inference.empty} without a {arguments.column}, {inference.bad} not JSON); "
            "choose others with --from or --max, or another column with --column"
        )
        raise PykafkaError(msg)
    if arguments.json:
        print_json(_as_json(inference))
        return 0
    _explain(inference, arguments.column)
    print(inference.sample.schema)
    return 0


def _records(arguments: argparse.Namespace) -> Iterator[tuple[TopicPartition, int, bytes | None]]:
    options = parse_stream_source({**read_options(arguments), "subscribe": arguments.topic})
    backend = metadata_backend(options.kafka, options.isolation_level, options.engine)
    client = MetadataClient(backend, options.fetch_offset_retry)
    with shared_api_timeout(options.kafka):
        assignment = client.assignment(Subscribe((arguments.topic,)))
        tps = assignment.partitions
        log_start, ends = client.log_start_offsets(tps), client.end_offsets(tps)
        starts, select = log_start, last_records
        if arguments.from_position is not None:
            first_offsets = offsets_at(dict.fromkeys(tps, arguments.from_position), client)
            starts = {tp: max(log_start[tp], first_offsets[tp]) for tp in tps}
            select = first_records
    columns = pa.schema([(name, SOURCE_TYPES[name]) for name in (arguments.column, "offset")])
    settings = fetch_settings(options, columns)
    share = -(-arguments.max // max(len(tps), 1))
    topic_id = assignment.topic_ids.get(arguments.topic)
    read = partial(_read, arguments.column, settings, topic_id)
    for tp, (offset, text) in select(read, starts, ends, share):
        yield tp, offset, text


def _read(
    column: str,
    settings: FetchSettings,
    topic_id: str | None,
    ranges: list[OffsetRange],
    count: int | None,
) -> Iterator[tuple[OffsetRange, tuple[int, bytes | None]]]:
    """
    Yield the offsets and texts of ranges of the topic with this id.
    """
    planned = [replace(r, topic_id=topic_id) for r in ranges]
    for offset_range, batch in fetch_many(planned, settings, count):
        offsets, texts = batch.column("offset").to_pylist(), batch.column(column).to_pylist()
        for record in zip(offsets, texts, strict=True):
            yield offset_range, record


def _as_json(inference: _Inference) -> dict[str, Any]:
    return {
        "schema": inference.sample.schema,
        "records": inference.records,
        "empty": inference.empty,
        "bad": inference.bad,
        "firstBad": inference.first_bad or None,
        "fields": [_field_as_json(inferred) for inferred in inference.sample.report()],
    }


def _field_as_json(inferred: InferredField) -> dict[str, Any]:
    return {
        "path": inferred.path,
        "type": inferred.type,
        "seen": inferred.seen,
        "of": inferred.total,
        "kinds": inferred.kinds,
        "note": inferred.note,
    }


def _explain(inference: _Inference, column: str) -> None:
    """
    Print to standard error the statistics that the schema does not show.
    """
    lines = [
        f"{inference.records} records, {inference.empty} of them without a {column}, "
        f"{inference.bad} not JSON"
        + (f", the first one in {inference.first_bad}" if inference.bad else "")
    ]
    for inferred in inference.sample.report():
        note = f" ({inferred.note})" if inferred.note else ""
        path = printable(inferred.path.encode(errors="replace"))
        lines.append(f"  {path}: in {inferred.seen} of {inferred.total}{note}")
    print("\n".join(lines), file=sys.stderr)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "--column",
        choices=("value", "key"),
        default="value",
        help="the column with the JSON; default: value",
    )
    parser.add_argument(
        "--from",
        dest="from_position",
        type=position,
        metavar="POSITION",
        help="the start of the sample in each partition; default: the sample ends at the log's end",
    )
    parser.add_argument(
        "--max",
        type=whole_number(1, 1_000_000),
        default=_MAX_RECORDS,
        metavar="N",
        help="the number of records, divided among the partitions; default: 1000",
    )
    add_brokers(parser)
    add_json(parser)


SCHEMA = Command(
    "schema",
    "Infer the schema of a topic's JSON.",
    lambda parser: add_actions(
        parser,
        (Action("infer", "Print the schema of a sample as DDL, for valueSchema.", _infer),),
        _add_arguments,
    ),
    run_action,
)
