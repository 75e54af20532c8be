"""`pykafka progress` and `pykafka lag`: what a progress store holds, and moving it by hand."""

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
from pyspark_pykafka.cli.output import print_table
from pyspark_pykafka.engines.metadata import MetadataClient
from pyspark_pykafka.engines.selection import metadata_backend
from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.offsets import (
    Assignment,
    Offsets,
    TopicPartition,
    format_partitions,
    offsets_from_json,
    offsets_to_json,
)
from pyspark_pykafka.options import Subscribe, parse_stream_source
from pyspark_pykafka.progress.factory import make_progress_store, process_name, read_records
from pyspark_pykafka.progress.record import Owner, Record

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from pyspark_pykafka.options import SourceOptions
    from pyspark_pykafka.progress.store import Records

# A password on a command line is for everyone to see who can list processes.
DIGEST_VARIABLE = "PYKAFKA_ZOOKEEPER_DIGEST"

_POSITION = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]+)(:(?P<partition>[0-9]+))?=(?P<at>[0-9]+|earliest|latest)"
)


def _add_store_arguments(parser: argparse.ArgumentParser) -> None:
    add_brokers(parser)
    store = parser.add_mutually_exclusive_group(required=True)
    store.add_argument("--group", help="the consumer group that has the progress")
    store.add_argument("--zookeeper", metavar="HOSTS", help="the ZooKeeper that has it")
    parser.add_argument("--id", help="the query's zookeeperId; with --zookeeper")
    parser.add_argument("--root", help="its zookeeperRoot, default: /pykafka")
    parser.epilog = f"A user of ZooKeeper is taken from {DIGEST_VARIABLE}, as user:password."


def _options(chosen: argparse.Namespace) -> SourceOptions:
    options = {**broker_options(chosen), "subscribePattern": "."}
    if chosen.group is not None:
        options |= {"progressStore": "consumerGroup", "kafka.group.id": chosen.group}
    else:
        given = {
            "progressStore": "zookeeper",
            "zookeeperHosts": chosen.zookeeper,
            "zookeeperId": chosen.id,
            "zookeeperRoot": chosen.root,
            "zookeeperDigest": os.environ.get(DIGEST_VARIABLE),
        }
        options |= {name: value for name, value in given.items() if value is not None}
    return parse_stream_source(options)


def _show(chosen: argparse.Namespace) -> int:
    records = read_records(_options(chosen))
    if chosen.json:
        print(json.dumps([_as_json(tp, records[tp]) for tp in sorted(records)], indent=2))
        return 0
    rows = [
        (tp.topic, tp.partition, at.offset, at.batch, *_of_owner(at.owner), _of_attempts(at))
        for tp, at in sorted(records.items())
    ]
    print_table(("TOPIC", "PARTITION", "OFFSET", "BATCH", "QUERY", "PROCESS", "ATTEMPTS"), rows)
    return 0


def _as_json(tp: TopicPartition, record: Record) -> dict[str, Any]:
    return {"topic": tp.topic, "partition": tp.partition, **asdict(record)}


def _of_owner(owner: Owner | None) -> tuple[str | None, str | None]:
    return (owner.query, owner.run) if owner else (None, None)


def _of_attempts(record: Record) -> int | None:
    return record.failing.attempts if record.failing else None


def _set(chosen: argparse.Namespace) -> int:
    options = _options(chosen)
    return _move(chosen, options, _wanted(options, chosen.position))


def _import(chosen: argparse.Namespace) -> int:
    try:
        text = sys.stdin.read() if chosen.file == "-" else Path(chosen.file).read_text()
        document = json.loads(text)
    except (OSError, ValueError) as cause:
        msg = f"{chosen.file} cannot be read as JSON: {cause}"
        raise OptionsError((msg,)) from cause
    if not isinstance(document, dict):
        msg = f'{chosen.file} must hold an object as {{"topic": {{"0": 23}}}}'
        raise OptionsError((msg,))
    offsets = offsets_from_json(document)
    negative = [f"{tp} is {at}; it must be: 0 or more" for tp, at in offsets.items() if at < 0]
    if negative:
        raise OptionsError(tuple(negative))
    return _move(chosen, _options(chosen), offsets)


def _export(chosen: argparse.Namespace) -> int:
    """Print the offsets as startingOffsets takes them."""
    records = read_records(_options(chosen))
    print(json.dumps(offsets_to_json({tp: record.offset for tp, record in records.items()})))
    return 0


def _move(chosen: argparse.Namespace, options: SourceOptions, wanted: Offsets) -> int:
    with closing(make_progress_store(options)) as store:
        held = store.read()
        print_table(
            ("TOPIC", "PARTITION", "OFFSET", "NEW-OFFSET"),
            [(*tp, held[tp].offset if tp in held else None, wanted[tp]) for tp in sorted(wanted)],
        )
        if not chosen.execute:
            print("Nothing is changed; with --execute it would be.")
            return 0
        topics = {tp.topic for tp in wanted}
        ids = _existing(options, wanted).topic_ids
        owner = store.claim(Owner("pykafka progress", process_name(), 0), topics).owner
        store.write(
            {tp: Record(at, owner, topic_id=ids.get(tp.topic)) for tp, at in wanted.items()}
        )
    print("Changed.")
    return 0


def _reset(chosen: argparse.Namespace) -> int:
    with closing(make_progress_store(_options(chosen))) as store:
        held = store.read()
        print_table(
            ("TOPIC", "PARTITION", "OFFSET"), [(*tp, held[tp].offset) for tp in sorted(held)]
        )
        if not chosen.execute:
            print("Nothing is changed; with --execute these records would be taken away.")
            return 0
        store.delete_records()
    print("Taken away.")
    return 0


def _lag(chosen: argparse.Namespace) -> int:
    options = _options(chosen)
    records = read_records(options)
    broker = _broker(options)
    ends = broker.end_offsets(broker.partitions_for({tp.topic for tp in records}))
    lags = {tp: end - records[tp].offset for tp, end in ends.items() if tp in records}
    if chosen.json:
        found = [
            {**tp._asdict(), "offset": _offset(records, tp), "end": ends[tp], "lag": lags.get(tp)}
            for tp in sorted(ends)
        ]
        print(json.dumps({"partitions": found, "lag": sum(lags.values())}, indent=2))
        return 0
    print_table(
        ("TOPIC", "PARTITION", "OFFSET", "END", "LAG"),
        [(*tp, _offset(records, tp), ends[tp], lags.get(tp)) for tp in sorted(ends)],
    )
    print(f"Lag in all: {sum(lags.values())}")
    return 0


def _offset(records: Records, tp: TopicPartition) -> int | None:
    return records[tp].offset if tp in records else None


def _wanted(options: SourceOptions, positions: Sequence[str]) -> Offsets:
    """Read what people write: topic:partition=offset, with a word for the offset, or topic=word."""
    broker = _broker(options)
    wanted: Offsets = {}
    for text in positions:
        match = _POSITION.fullmatch(text)
        if match is None:
            msg = (
                f"'{text}' is no position; it must be: TOPIC:PARTITION=OFFSET or TOPIC=OFFSET, "
                "where OFFSET is a number, earliest or latest"
            )
            raise OptionsError((msg,))
        topic, partition, at = match["topic"], match["partition"], match["at"]
        tps = (
            broker.partitions_for([topic])
            if partition is None
            else [TopicPartition(topic, int(partition))]
        )
        wanted |= _resolved(broker, tps, at)
    return wanted


def _resolved(broker: MetadataClient, tps: list[TopicPartition], at: str) -> Offsets:
    if at == "earliest":
        return broker.log_start_offsets(tps)
    return broker.end_offsets(tps) if at == "latest" else dict.fromkeys(tps, int(at))


def _existing(options: SourceOptions, wanted: Iterable[TopicPartition]) -> Assignment:
    """Return what there is of the topics, and refuse partitions that are not."""
    found = _broker(options).assignment(Subscribe(tuple(sorted({tp.topic for tp in wanted}))))
    missing = set(wanted) - set(found.partitions)
    if missing:
        raise OptionsError((f"the brokers do not have {format_partitions(missing)}",))
    return found


def _broker(options: SourceOptions) -> MetadataClient:
    backend = metadata_backend(options.kafka, options.isolation_level, options.engine)
    return MetadataClient(backend, options.fetch_offset_retry)


def _add_positions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "position",
        nargs="+",
        metavar="TOPIC[:PARTITION]=OFFSET",
        help="where a partition, or every one of a topic, is to stand: a number, earliest, latest",
    )


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="as export writes it; a hyphen is the standard input")


_ACTIONS = (
    Action("show", "Show how far a query has come in each partition.", _show, (add_json,)),
    Action("set", "Move partitions by hand.", _set, (_add_positions, add_execute)),
    Action("reset", "Take all records of a store away.", _reset, (add_execute,)),
    Action("export", "Print all offsets as startingOffsets takes them.", _export),
    Action("import", "Set what an export has printed.", _import, (_add_file, add_execute)),
)


def _add_lag_arguments(parser: argparse.ArgumentParser) -> None:
    _add_store_arguments(parser)
    add_json(parser)


PROGRESS = Command(
    "progress",
    "Show, move, take away or copy what a progress store holds of a query.",
    lambda parser: add_actions(parser, _ACTIONS, _add_store_arguments),
    run_action,
)
LAG = Command(
    "lag",
    "Show how many offsets a query has still to read.",
    _add_lag_arguments,
    _lag,
)
