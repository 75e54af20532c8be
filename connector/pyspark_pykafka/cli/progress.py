"""
`pykafka progress`: shows and changes the records of a progress store.
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.cli.arguments import add_execute
from pyspark_pykafka.cli.command import Action, Command, add_actions, run_action
from pyspark_pykafka.cli.output import print_json, print_table
from pyspark_pykafka.cli.progress_store import (
    DRY_RUN,
    add_store_arguments,
    existing_records,
    no_store_error,
    store_options,
)
from pyspark_pykafka.engines.first_contact import shared_api_timeout
from pyspark_pykafka.errors import OptionsError, ProgressError
from pyspark_pykafka.offsets import (
    Assignment,
    Offsets,
    TopicPartition,
    format_partitions,
    offsets_from_json,
    offsets_to_json,
)
from pyspark_pykafka.options import Subscribe
from pyspark_pykafka.options.json_offsets import parse_position
from pyspark_pykafka.progress.factory import make_progress_store, process_name
from pyspark_pykafka.progress.record import Owner, ProgressRecord
from pyspark_pykafka.source.factory import metadata_client
from pyspark_pykafka.source.offset_limits import offsets_at

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from pyspark_pykafka.options import SourceOptions
    from pyspark_pykafka.progress.store import Records

_POSITION = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)(:(?P<partition>[0-9]+))?=(?P<position>.+)")
_FORMS = "TOPIC:PARTITION=OFFSET or TOPIC=OFFSET"


def _show(arguments: argparse.Namespace) -> int:
    records = existing_records(store_options(arguments))
    if arguments.json:
        print_json([_as_json(tp, records[tp]) for tp in sorted(records)])
        return 0
    rows = [
        (*tp, record.offset, record.batch, *_owner_cells(record.owner), _attempts(record))
        for tp, record in sorted(records.items())
    ]
    print_table(("TOPIC", "PARTITION", "OFFSET", "BATCH", "QUERY", "PROCESS", "ATTEMPTS"), rows)
    return 0


def _as_json(tp: TopicPartition, record: ProgressRecord) -> dict[str, Any]:
    return {"topic": tp.topic, "partition": tp.partition, **asdict(record)}


def _owner_cells(owner: Owner | None) -> tuple[str | None, str | None]:
    return (owner.query, owner.process) if owner else (None, None)


def _attempts(record: ProgressRecord) -> int | None:
    return record.failing.attempts if record.failing else None


def _set(arguments: argparse.Namespace) -> int:
    options = store_options(arguments)
    with shared_api_timeout(options.kafka):
        requested = _parse_positions(options, arguments.position)
    return _move(arguments, options, requested)


def _import(arguments: argparse.Namespace) -> int:
    try:
        text = sys.stdin.read() if arguments.file == "-" else Path(arguments.file).read_text()
        document = json.loads(text)
    except (OSError, ValueError, RecursionError) as cause:
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
    return _move(arguments, store_options(arguments), offsets)


def _export(arguments: argparse.Namespace) -> int:
    """
    Print the offsets in the form of startingOffsets.
    """
    records = existing_records(store_options(arguments))
    print(json.dumps(offsets_to_json({tp: record.offset for tp, record in records.items()})))
    return 0


def _move(arguments: argparse.Namespace, options: SourceOptions, requested: Offsets) -> int:
    with closing(make_progress_store(options)) as store:
        with shared_api_timeout(options.kafka):
            ids = _existing_partitions(options, requested).topic_ids
            stored = store.read()
        rows = [
            (*tp, stored[tp].offset if tp in stored else None, requested[tp])
            for tp in sorted(requested)
        ]
        if not arguments.json:
            print_table(("TOPIC", "PARTITION", "OFFSET", "NEW-OFFSET"), rows)
        if arguments.execute:
            topics = {tp.topic for tp in requested}
            owner = store.claim(Owner("pykafka progress", process_name(), 0), topics).owner
            store.write(
                {
                    tp: ProgressRecord(offset, owner, topic_id=ids.get(tp.topic))
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
    """
    Print the result, or the note about the dry run; with --json print the partitions too.
    """
    if arguments.json:
        print_json({"partitions": partitions, "executed": arguments.execute})
    else:
        print(done if arguments.execute else f"{DRY_RUN} {to_do}.")


def _reset(arguments: argparse.Namespace) -> int:
    options = store_options(arguments)
    with closing(make_progress_store(options)) as store:
        stored = store.read()
        if not stored:
            raise no_store_error(options)
        if not arguments.force:
            _check_written_by_queries(stored)
        rows = [(*tp, stored[tp].offset) for tp in sorted(stored)]
        if not arguments.json:
            print_table(("TOPIC", "PARTITION", "OFFSET"), rows)
        if arguments.execute:
            store.delete_records()
    partitions = [dict(zip(("topic", "partition", "offset"), row, strict=True)) for row in rows]
    _report(arguments, partitions, "Deleted.", "delete these records")
    return 0


def _check_written_by_queries(stored: Records) -> None:
    """
    Raise :class:`ProgressError` if another program has written a record: the group or the node may
    be that of other consumers.
    """
    foreign = [tp for tp, record in stored.items() if record.owner is None]
    if foreign:
        msg = (
            f"the offsets of {format_partitions(foreign)} were not recorded by a query with this "
            "connector, but by another program. Without them that program would start again from "
            "its own default. Correct the name, or delete them anyway with --force"
        )
        raise ProgressError("PROGRESS_OWNED", msg)


def _parse_positions(options: SourceOptions, positions: Sequence[str]) -> Offsets:
    """
    Parse TOPIC:PARTITION=POSITION and TOPIC=POSITION.
    """
    client = metadata_client(options)
    offsets: Offsets = {}
    for text in positions:
        match = _POSITION.fullmatch(text)
        if match is None:
            raise OptionsError((f"'{text}' is not a valid position; it must be: {_FORMS}",))
        topic, partition = match["topic"], match["partition"]
        try:
            position = parse_position(match["position"])
        except ValueError as cause:
            raise OptionsError((f"'{text}' is not a valid position; {cause}",)) from cause
        tps: Sequence[TopicPartition] = (
            client.assignment(Subscribe((topic,))).partitions
            if partition is None
            else [TopicPartition(topic, int(partition))]
        )
        offsets |= offsets_at(dict.fromkeys(tps, position), client)
    return offsets


def _existing_partitions(options: SourceOptions, requested: Iterable[TopicPartition]) -> Assignment:
    """
    Return the partitions of the topics; raise :class:`OptionsError` if a requested one is missing.
    """
    assignment = metadata_client(options).assignment(
        Subscribe(tuple(sorted({tp.topic for tp in requested})))
    )
    missing = set(requested) - set(assignment.partitions)
    if missing:
        raise OptionsError((f"the brokers do not have {format_partitions(missing)}",))
    return assignment


def _add_positions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "position",
        nargs="+",
        metavar="TOPIC[:PARTITION]=POSITION",
        help="the new position of a partition or a whole topic: an offset, earliest, latest, "
        "'-10 minutes', -100, or a time with a zone",
    )


def _add_force(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--force",
        action="store_true",
        help="delete also offsets that another program has recorded",
    )


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the output of export; - is standard input")


_ACTIONS = (
    Action("show", "Show the recorded offset of each partition.", _show),
    Action("set", "Set the recorded offsets of partitions.", _set, (_add_positions, add_execute)),
    Action("reset", "Delete all records of a store.", _reset, (add_execute, _add_force)),
    Action("export", "Print all offsets in the form of startingOffsets.", _export),
    Action("import", "Set the offsets that export has printed.", _import, (_add_file, add_execute)),
)


PROGRESS = Command(
    "progress",
    "Show, set, delete or copy the records of a query's progress store.",
    lambda parser: add_actions(parser, _ACTIONS, add_store_arguments),
    run_action,
)
