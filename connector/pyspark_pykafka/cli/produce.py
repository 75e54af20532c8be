"""
`pykafka produce`: writes records from arguments or from the lines of standard input.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_pykafka.cli.arguments import (
    add_brokers,
    add_json,
    add_settings,
    broker_options,
)
from pyspark_pykafka.cli.command import Command
from pyspark_pykafka.engines.selection import check_topic, produce
from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.options import parse_sink
from pyspark_pykafka.schema import HEADERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ROWS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("headers", HEADERS),
    ]
)
_BATCH_RECORDS = 1_000


def _produce(arguments: argparse.Namespace) -> int:
    options = broker_options(arguments)
    sink = parse_sink({**options, "topic": arguments.topic}, streaming=False)
    check_topic(sink.kafka, arguments.topic, sink.engine)
    values = [value.encode() for value in arguments.value] or _lines()
    count = produce(_batches(values, arguments), sink.kafka, arguments.topic, sink.engine)
    if arguments.json:
        print(json.dumps({"topic": arguments.topic, "records": count}))
    else:
        print(f"Sent: {count}")
    return 0


def _lines() -> Iterator[bytes]:
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _batches(values: Iterable[bytes], arguments: argparse.Namespace) -> Iterator[pa.RecordBatch]:
    headers = [{"key": name, "value": value} for name, value in arguments.header] or None
    remaining = iter(values)
    while chunk := list(islice(remaining, _BATCH_RECORDS)):
        pairs = [_key_and_value(value, arguments) for value in chunk]
        rows = [
            {"key": key, "value": value, "partition": arguments.partition, "headers": headers}
            for key, value in pairs
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=_ROWS)


def _key_and_value(text: bytes, arguments: argparse.Namespace) -> tuple[bytes | None, bytes | None]:
    key = None if arguments.key is None else arguments.key.encode()
    if arguments.key_separator is not None:
        key, separator, text = text.partition(arguments.key_separator.encode())
        if not separator:
            msg = (
                f"--key-separator is {arguments.key_separator!r}, but a line does not contain it; "
                "each line must be: KEY, the separator, VALUE"
            )
            raise OptionsError((msg,))
    return key, None if arguments.null else text


def _add_produce_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", required=True)
    parser.add_argument(
        "value",
        nargs="*",
        metavar="VALUE",
        help="the records' values; without any, each line of standard input is one",
    )
    keys = parser.add_mutually_exclusive_group()
    keys.add_argument("--key", help="the key of all records")
    keys.add_argument(
        "--key-separator", metavar="TEXT", help="the text between each key and its value"
    )
    parser.add_argument("--null", action="store_true", help="write null values, as tombstones")
    parser.add_argument(
        "--partition", type=int, help="the partition to write to; default: chosen by the key"
    )
    add_settings(parser, "--header", "a header of all records; may be repeated", _header)
    add_brokers(parser)
    add_json(parser)


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals:
        msg = f"{text!r} is not valid; it must be NAME=VALUE"
        raise argparse.ArgumentTypeError(msg)
    return name, value.encode()


PRODUCE = Command(
    "produce",
    "Write records to a topic, from arguments or from the lines of standard input.",
    _add_produce_arguments,
    _produce,
)
