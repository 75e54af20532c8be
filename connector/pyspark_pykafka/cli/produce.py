"""
`pykafka produce`: writes records from arguments or from the lines of standard input.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from pyspark_pykafka.cli.arguments import (
    add_brokers,
    add_json,
    add_settings,
    broker_options,
    whole_number,
)
from pyspark_pykafka.cli.command import Command
from pyspark_pykafka.engines.selection import check_topic, produce
from pyspark_pykafka.errors import OptionsError, PykafkaError
from pyspark_pykafka.options import parse_sink
from pyspark_pykafka.schema import HEADERS

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator, Sequence

_ROWS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("headers", HEADERS),
    ]
)
#: The approximate number of input bytes that are sent and acknowledged at a time.
_CHUNK_BYTES = 1 << 20


def _produce(arguments: argparse.Namespace) -> int:
    options = broker_options(arguments)
    sink = parse_sink({**options, "topic": arguments.topic}, streaming=False)
    check_topic(sink.kafka, arguments.topic, sink.engine)
    values = [[os.fsencode(value) for value in arguments.value]] if arguments.value else _lines()
    sent = 0
    try:
        for chunk in values:
            rows = _rows(chunk, sent, arguments)
            sent += produce([rows], sink.kafka, arguments.topic, sink.engine)
    except (KeyboardInterrupt, PykafkaError):
        if sent:
            print(f"pykafka produce: at least the first {sent} records were sent", file=sys.stderr)
        raise
    if arguments.json:
        print(json.dumps({"topic": arguments.topic, "records": sent}))
    else:
        print(f"Sent: {sent}")
    return 0


def _lines() -> Iterator[list[bytes]]:
    """
    Yield the lines of standard input as they arrive, so that none waits for later ones.
    """
    stdin = cast("io.BufferedReader", sys.stdin.buffer)
    pieces: list[bytes] = []
    while data := stdin.read1(_CHUNK_BYTES):
        end_of_line, newline, others = data.partition(b"\n")
        pieces.append(end_of_line)
        if newline:
            *lines, rest = others.split(b"\n")
            yield [line.removesuffix(b"\r") for line in (b"".join(pieces), *lines)]
            pieces = [rest]
    if last := b"".join(pieces):
        yield [last.removesuffix(b"\r")]


def _rows(values: Sequence[bytes], sent: int, arguments: argparse.Namespace) -> pa.RecordBatch:
    headers = [{"key": name, "value": value} for name, value in arguments.header] or None
    pairs = [
        _key_and_value(value, sent + number, arguments) for number, value in enumerate(values, 1)
    ]
    return pa.RecordBatch.from_pylist(
        [
            {"key": key, "value": value, "partition": arguments.partition, "headers": headers}
            for key, value in pairs
        ],
        schema=_ROWS,
    )


def _key_and_value(
    text: bytes, number: int, arguments: argparse.Namespace
) -> tuple[bytes | None, bytes | None]:
    key = None if arguments.key is None else os.fsencode(arguments.key)
    if arguments.key_separator is not None:
        key, separator, text = text.partition(os.fsencode(arguments.key_separator))
        if not separator:
            msg = (
                f"--key-separator is {arguments.key_separator!r}, but record {number} does not "
                "contain it; each must be: KEY, the separator, VALUE"
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
        "--partition",
        type=whole_number(0, 2**31 - 1),
        help="the partition to write to; default: chosen by the key",
    )
    add_settings(parser, "--header", "a header of all records; may be repeated", _header)
    add_brokers(parser)
    add_json(parser)


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals:
        msg = f"{text!r} is not valid; it must be NAME=VALUE"
        raise argparse.ArgumentTypeError(msg)
    return name, os.fsencode(value)


PRODUCE = Command(
    "produce",
    "Write records to a topic, from arguments or from the lines of standard input.",
    _add_produce_arguments,
    _produce,
)
