"""`pykafka deadletter`: what was set aside, and sending it on its way again."""

from __future__ import annotations

import base64
import json
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.cli.arguments import add_brokers, add_execute, add_json, broker_options
from pyspark_pykafka.cli.command import Action, Command, add_actions, run_action
from pyspark_pykafka.cli.output import print_table
from pyspark_pykafka.engines.metadata import MetadataClient
from pyspark_pykafka.engines.selection import metadata_backend
from pyspark_pykafka.failures.dead_letters import (
    dead_letter_fetch_settings,
    read_dead_letters,
    replay_dead_letters,
)
from pyspark_pykafka.offsets import OffsetRange
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.progress.factory import process_name
from pyspark_pykafka.progress.group_store import GroupStore
from pyspark_pykafka.progress.record import Owner, Record

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pyspark_pykafka.failures.dead_letters import DeadLetter

_SHOWN = 80


class _Letters:
    """The letters of a topic that have not been replayed yet, or all of them."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.options = {**broker_options(chosen), "subscribe": chosen.topic}
        source = parse_stream_source(self.options)
        self.topic = chosen.topic
        backend = metadata_backend(source.kafka, "read_committed", source.engine)
        self._broker = MetadataClient(backend, source.fetch_offset_retry)
        group = chosen.group or f"{chosen.topic}-replay"
        self.replayed = GroupStore(source.kafka, group, self._broker)

    def ranges(self, *, everything: bool) -> list[OffsetRange]:
        tps = self._broker.partitions_for([self.topic])
        first, end = self._broker.log_start_offsets(tps), self._broker.end_offsets(tps)
        done = {} if everything else self.replayed.read()
        starts = {tp: max(at, done[tp].offset if tp in done else at) for tp, at in first.items()}
        return [OffsetRange(tp, starts[tp], end[tp]) for tp in tps if starts[tp] < end[tp]]

    def read(self, ranges: list[OffsetRange]) -> Iterator[DeadLetter]:
        return read_dead_letters(ranges, dead_letter_fetch_settings(self.options))


def _list(chosen: argparse.Namespace) -> int:
    letters = _Letters(chosen)
    with closing(letters.replayed):
        found = list(letters.read(letters.ranges(everything=chosen.all)))
    if chosen.json:
        print(json.dumps([_as_json(letter) for letter in found], indent=2))
        return 0
    head = ("TOPIC", "PARTITION", "OFFSET", "BATCH", "ATTEMPTS", "ERROR")
    print_table(head, [_row(letter) for letter in found])
    return 0


def _row(letter: DeadLetter) -> tuple[object, ...]:
    reason = letter.reason
    first = f"{reason.get('error.class')}: {reason.get('error.message')}".split("\n", 1)[0]
    counts = (reason.get("batch"), reason.get("attempts"))
    return (*letter.source, letter.source_offset, *counts, first[:_SHOWN])


def _as_json(letter: DeadLetter) -> dict[str, Any]:
    return {
        "partition": letter.tp.partition,
        "offset": letter.offset,
        "why": dict(letter.reason),
        "key": _text(letter.key),
        "value": _text(letter.value),
        "headers": [[name, _text(value)] for name, value in letter.headers or ()],
    }


def _text(data: bytes | None) -> str | dict[str, str] | None:
    """Return text as it is, and other bytes so that nothing of them is lost."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _replay(chosen: argparse.Namespace) -> int:
    letters = _Letters(chosen)
    with closing(letters.replayed) as replayed:
        claim = None
        if chosen.execute:
            owner = Owner("pykafka deadletter replay", process_name(), 0)
            claim = replayed.claim(owner, [chosen.topic])
        ranges = letters.ranges(everything=False)
        found = list(letters.read(ranges))
        counts = Counter(chosen.to or letter.source.topic for letter in found)
        print_table(("TO-TOPIC", "RECORDS"), sorted(counts.items()))
        if claim is None:
            print("Nothing is sent; with --execute it would be.")
            return 0
        replay_dead_letters(found, letters.options, chosen.to)
        replayed.write({r.tp: Record(r.end, claim.owner) for r in ranges})
    print(f"Sent: {len(found)}")
    return 0


def _add_topic(parser: argparse.ArgumentParser) -> None:
    add_brokers(parser)
    parser.add_argument("--topic", required=True, help="the dead-letter topic")
    parser.add_argument(
        "--group",
        help="the group that knows what was replayed, default: the topic's name and -replay",
    )


def _add_all(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="those, too, that were replayed")


def _add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", metavar="TOPIC", help="default: the topics they come from")


_ACTIONS = (
    Action("list", "Show what was set aside, and why.", _list, (_add_all, add_json)),
    Action(
        "replay",
        "Send what was set aside to its topic again, as it was; each record once, or again if "
        "this is interrupted.",
        _replay,
        (_add_to, add_execute),
    ),
)

DEADLETTER = Command(
    "deadletter",
    "Show or replay records that isolate_poison has set aside.",
    lambda parser: add_actions(parser, _ACTIONS, _add_topic),
    run_action,
)
