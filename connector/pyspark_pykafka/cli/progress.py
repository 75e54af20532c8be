"""`pykafka progress` and `pykafka lag`: shows and changes the records of a progress store."""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.cli.arguments import add_brokers, add_execute, add_json, broker_options
from pyspark_pykafka.cli.command import Action, Command, add_actions, run_action
from pyspark_pykafka.cli.output import print_json, print_table
from pyspark_pykafka.engines.metadata import MetadataClient
from pyspark_pykafka.engines.selection import metadata_backend
from pyspark_pykafka.errors import OptionsError, ProgressError
from pyspark_pykafka.offsets import (
    Assignment,
    Offsets,
    TopicPartition,
    format_partitions,
    offsets_from_json,
    offsets_to_json,
)
from pyspark_pykafka.options import Subscribe, ZooKeeperNodes, parse_stream_source
from pyspark_pykafka.progress.factory import make_progress_store, process_name, read_records
from pyspark_pykafka.progress.record import Owner, Record

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from pyspark_pykafka.options import SourceOptions
    from pyspark_pykafka.progress.store import Records

# A password on the command line would be visible to everyone who can list processes.
DIGEST_VARIABLE = "PYKAFKA_ZOOKEEPER_DIGEST"

DRY_RUN = "Dry run: nothing was changed. Use --execute to"

_POSITION = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]+)(:(?P<partition>[0-9]+))?=(?P<offset>[0-9]+|earliest|latest)"
)


def _add_store_arguments(parser: argparse.ArgumentParser) -> None:
    add_brokers(parser)
    add_json(parser)
    store = parser.add_mutually_exclusive_group(required=True)
    store.add_argument("--group", help="the consumer group of the query")
    store.add_argument("--zookeeper", metavar="HOSTS", help="the ZooKeeper servers of the query")
    parser.add_argument("--id", help="the query's zookeeperId; with --zookeeper")
    parser.add_argument("--root", help="the query's zookeeperRoot; default: /pykafka")
    parser.epilog = f"ZooKeeper credentials are read from {DIGEST_VARIABLE}, as user:password."


def _options(arguments: argparse.Namespace) -> SourceOptions:
    options = {**broker_options(arguments), "subscribePattern": "."}
    if arguments.group is not None:
        options |= {"progressStore": "consumerGroup", "kafka.group.id": arguments.group}
    else:
        store_options = {
            "progressStore": "zookeeper",
            "zookeeperHosts": arguments.zookeeper,
            "zookeeperId": arguments.id,
            "zookeeperRoot": arguments.root,
            "zookeeperDigest": os.environ.get(DIGEST_VARIABLE),
        }
        options |= {name: value for name, value in store_options.items() if value is not None}
    return parse_stream_source(options)


def _existing_records(options: SourceOptions) -> Records:
    """
    Return the records of the store; raise :class:`ProgressError` if it has none.
    """
    records = read_records(options)
    if not records:
        raise _no_store_error(options)
    return records


def _no_store_error(options: SourceOptions) -> ProgressError:
    """
    Return the error for a store without records: brokers do not report whether a group exists.
    """
    store = options.progress_store
    name, argument = (
        (f"the ZooKeeper node {store.root}/{store.id}", "--id and --root")
        if isinstance(store, ZooKeeperNodes)
        else (f"the consumer group '{options.kafka.get('group.id')}'", "--group")
    )
    msg = f"{name} does not exist, or has no recorded offsets; correct {argument}"
    return ProgressError("PROGRESS_NOT_FOUND", msg)


def _show(arguments: argparse.Namespace) -> int:
    records = _existing_records(_options(arguments))
    if arguments.json:
        print_json([_as_json(tp, records[tp]) for tp in sorted(records)])
        return 0
    rows = [
        (*tp, record.offset, record.batch, *_owner_cells(record.owner), _attempts(record))
        for tp, record in sorted(records.items())
    ]
    print_table(("TOPIC", "PARTITION", "OFFSET", "BATCH", "QUERY", "PROCESS", "ATTEMPTS"), rows)
    return 0


def _as_json(tp: TopicPartition, record: Record) -> dict[str, Any]:
    return {"topic": tp.topic, "partition": tp.partition, **asdict(record)}


def _owner_cells(owner: Owner | None) -> tuple[str | None, str | None]:
    return (owner.query, owner.run) if owner else (None, None)


def _attempts(record: Record) -> int | None:
    return record.failing.attempts if record.failing else None


def _set(arguments: argparse.Namespace) -> int:
    options = _options(arguments)
    return _move(arguments, options, _parse_positions(options, arguments.position))


def _import(arguments: argparse.Namespace) -> int:
    try:
        text = sys.stdin.read() if arguments.file == "-" else Path(arguments.file).read_text()
        document = json.loads(text)
    except (OSError, ValueError) as cause:
        msg = f"{arguments.file} cannot be read as JSON: {cause}"
        raise OptionsError((msg,)) from cause
    if not isinstance(document, dict):
        msg = f'{arguments.file} must be an object such as {{"topic": {{"0": 23}}}}'
        raise OptionsError((msg,))
    offsets = offsets_from_json(document)
    negative = [
        f"{tp} is {offset}; it must be: at least 0" for tp, offset in offsets.items() if offset < 0
    ]
    if negative:
        raise OptionsError(tuple(negative))
    return _move(arguments, _options(arguments), offsets)


def _export(arguments: argparse.Namespace) -> int:
    """Print the offsets in the form of startingOffsets."""
    records = _existing_records(_options(arguments))
    print(json.dumps(offsets_to_json({tp: record.offset for tp, record in records.items()})))
    return 0


def _move(arguments: argparse.Namespace, options: SourceOptions, requested: Offsets) -> int:
    with closing(make_progress_store(options)) as store:
        stored = store.read()
        rows = [
            (*tp, stored[tp].offset if tp in stored else None, requested[tp])
            for tp in sorted(requested)
        ]
        if not arguments.json:
            print_table(("TOPIC", "PARTITION", "OFFSET", "NEW-OFFSET"), rows)
        if arguments.execute:
            topics = {tp.topic for tp in requested}
            ids = _existing_partitions(options, requested).topic_ids
            owner = store.claim(Owner("pykafka progress", process_name(), 0), topics).owner
            store.write(
                {
                    tp: Record(offset, owner, topic_id=ids.get(tp.topic))
                    for tp, offset in requested.items()
                }
            )
    names = ("topic", "partition", "offset", "newOffset")
    changes = [dict(zip(names, row, strict=True)) for row in rows]
    _report(arguments, changes, "Changed.", "set these offsets")
    return 0


def _report(
    arguments: argparse.Namespace, partitions: list[dict[str, Any]], done: str, to_do: str
) -> None:
    """Print what was done, or how to do it; with --json also the partitions."""
    if arguments.json:
        print_json({"partitions": partitions, "executed": arguments.execute})
    else:
        print(done if arguments.execute else f"{DRY_RUN} {to_do}.")


def _reset(arguments: argparse.Namespace) -> int:
    options = _options(arguments)
    with closing(make_progress_store(options)) as store:
        stored = store.read()
        if not stored:
            raise _no_store_error(options)
        rows = [(*tp, stored[tp].offset) for tp in sorted(stored)]
        if not arguments.json:
            print_table(("TOPIC", "PARTITION", "OFFSET"), rows)
        if arguments.execute:
            store.delete_records()
    partitions = [dict(zip(("topic", "partition", "offset"), row, strict=True)) for row in rows]
    _report(arguments, partitions, "Deleted.", "delete these records")
    return 0


def _lag(arguments: argparse.Namespace) -> int:
    options = _options(arguments)
    records = _existing_records(options)
    client = _metadata_client(options)
    ends = client.end_offsets(client.partitions_for({tp.topic for tp in records}))
    lags = {tp: end - records[tp].offset for tp, end in ends.items() if tp in records}
    if arguments.json:
        partitions = [
            {**tp._asdict(), "offset": _offset(records, tp), "end": ends[tp], "lag": lags.get(tp)}
            for tp in sorted(ends)
        ]
        print_json({"partitions": partitions, "lag": sum(lags.values())})
        return 0
    print_table(
        ("TOPIC", "PARTITION", "OFFSET", "END", "LAG"),
        [(*tp, _offset(records, tp), ends[tp], lags.get(tp)) for tp in sorted(ends)],
    )
    print(f"Total lag: {sum(lags.values())}")
    return 0


def _offset(records: Records, tp: TopicPartition) -> int | None:
    return records[tp].offset if tp in records else None


def _parse_positions(options: SourceOptions, positions: Sequence[str]) -> Offsets:
    """Parse TOPIC:PARTITION=OFFSET and TOPIC=OFFSET; OFFSET may be earliest or latest."""
    client = _metadata_client(options)
    offsets: Offsets = {}
    for text in positions:
        match = _POSITION.fullmatch(text)
        if match is None:
            msg = (
                f"'{text}' is not a valid position; it must be: TOPIC:PARTITION=OFFSET or "
                "TOPIC=OFFSET, where OFFSET is a number, earliest or latest"
            )
            raise OptionsError((msg,))
        topic, partition, offset = match["topic"], match["partition"], match["offset"]
        tps = (
            client.partitions_for([topic])
            if partition is None
            else [TopicPartition(topic, int(partition))]
        )
        offsets |= _resolve(client, tps, offset)
    return offsets


def _resolve(client: MetadataClient, tps: list[TopicPartition], offset: str) -> Offsets:
    if offset == "earliest":
        return client.log_start_offsets(tps)
    return client.end_offsets(tps) if offset == "latest" else dict.fromkeys(tps, int(offset))


def _existing_partitions(options: SourceOptions, requested: Iterable[TopicPartition]) -> Assignment:
    """Return the existing partitions of the topics; raise if a requested one is missing."""
    assignment = _metadata_client(options).assignment(
        Subscribe(tuple(sorted({tp.topic for tp in requested})))
    )
    missing = set(requested) - set(assignment.partitions)
    if missing:
        raise OptionsError((f"the brokers do not have {format_partitions(missing)}",))
    return assignment


def _metadata_client(options: SourceOptions) -> MetadataClient:
    backend = metadata_backend(options.kafka, options.isolation_level, options.engine)
    return MetadataClient(backend, options.fetch_offset_retry)


def _add_positions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "position",
        nargs="+",
        metavar="TOPIC[:PARTITION]=OFFSET",
        help="the new offset of a partition or a whole topic: a number, earliest or latest",
    )


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the output of export; - is the standard input")


_ACTIONS = (
    Action("show", "Show the recorded offset of each partition.", _show),
    Action("set", "Set the recorded offsets of partitions.", _set, (_add_positions, add_execute)),
    Action("reset", "Delete all records of a store.", _reset, (add_execute,)),
    Action("export", "Print all offsets in the form of startingOffsets.", _export),
    Action(
        "import", "Set the offsets that an export has printed.", _import, (_add_file, add_execute)
    ),
)


PROGRESS = Command(
    "progress",
    "Show, set, delete or copy the records of a query's progress store.",
    lambda parser: add_actions(parser, _ACTIONS, _add_store_arguments),
    run_action,
)
LAG = Command(
    "lag",
    "Show the lag of a query: the number of offsets it has not read.",
    _add_store_arguments,
    _lag,
)
