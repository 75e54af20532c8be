"""
`pykafka deadletter`: lists and replays dead letters.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.cli.arguments import add_brokers, add_execute, add_json, read_options
from pyspark_pykafka.cli.command import Action, Command, add_actions, run_action
from pyspark_pykafka.cli.output import bytes_to_json, print_json, print_table
from pyspark_pykafka.engines.first_contact import shared_api_timeout
from pyspark_pykafka.engines.metadata import MetadataClient
from pyspark_pykafka.engines.selection import metadata_backend
from pyspark_pykafka.errors import UnknownTopicError
from pyspark_pykafka.failures.dead_letters import (
    dead_letter_fetch_settings,
    read_dead_letters,
    replay_dead_letters,
    unreplayed_ranges,
)
from pyspark_pykafka.options import Subscribe, parse_stream_source
from pyspark_pykafka.progress.factory import process_name
from pyspark_pykafka.progress.group_store import GroupStore
from pyspark_pykafka.progress.record import Owner, ProgressRecord

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark_pykafka.failures.dead_letters import DeadLetter
    from pyspark_pykafka.offsets import OffsetRange, TopicPartition

_MAX_ERROR_LENGTH = 120
_MAX_NAMES = 5
#: A replay records its position each time it has sent the letters of this number of offsets. After
#: an interruption at most this many letters are sent again, and memory never holds more letters.
_CHUNK = 1000


class _DeadLetterTopic:
    """
    A dead-letter topic, and the consumer group that records which of its records were replayed.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.options = {**read_options(arguments), "subscribe": arguments.topic}
        source = parse_stream_source(self.options)
        self.topic = arguments.topic
        backend = metadata_backend(source.kafka, "read_committed", source.engine)
        self._client = MetadataClient(backend, source.fetch_offset_retry)
        # Raises an error for a missing topic; requests for its offsets would be retried.
        self._existing_partitions([self.topic])
        self._kafka = source.kafka
        group = arguments.group or f"{arguments.topic}-replay"
        self.replay_store = GroupStore(source.kafka, group, self._client)

    def ranges(self, *, include_replayed: bool) -> list[OffsetRange]:
        with shared_api_timeout(self._kafka):
            replayed = {} if include_replayed else self.replay_store.read([self.topic])
            return unreplayed_ranges(self._client, self.topic, replayed)

    def read(self, ranges: Iterable[OffsetRange]) -> Iterator[DeadLetter]:
        return read_dead_letters(ranges, dead_letter_fetch_settings(self.options))

    def count_by_target(self, ranges: Iterable[OffsetRange], to: str | None) -> Counter[str]:
        """
        Return the number of letters to send to each topic.

        Raises an error if any target is missing; no letter has been sent by then.
        """
        counts: Counter[str] = Counter()
        sources: set[TopicPartition] = set()
        for letter in self.read(ranges):
            counts[to or letter.source.topic] += 1
            sources.add(letter.source)
        if counts:
            existing = self._existing_partitions(counts)
            # Letters for another topic go to the partition of their key.
            former = {tp for tp in sources if to in (None, tp.topic)}
            if missing := sorted(former.difference(existing)):
                names = ", ".join(map(str, missing[:_MAX_NAMES]))
                msg = (
                    f"the brokers do not have the partition {names} that dead letters come from; "
                    "name another topic with --to"
                )
                raise UnknownTopicError(msg)
        return counts

    def _existing_partitions(self, topics: Iterable[str]) -> Sequence[TopicPartition]:
        return self._client.assignment(Subscribe(tuple(sorted(topics)))).partitions


def _chunks(ranges: Iterable[OffsetRange]) -> Iterator[OffsetRange]:
    for whole in ranges:
        for start in range(whole.start, whole.end, _CHUNK):
            yield replace(whole, start=start, end=min(start + _CHUNK, whole.end))


def _list(arguments: argparse.Namespace) -> int:
    topic = _DeadLetterTopic(arguments)
    with closing(topic.replay_store):
        dead_letters = list(topic.read(topic.ranges(include_replayed=arguments.all)))
    if arguments.json:
        print_json([_as_json(letter) for letter in dead_letters])
        return 0
    head = ("TOPIC", "PARTITION", "OFFSET", "BATCH", "ATTEMPTS", "ERROR")
    print_table(head, [_row(letter) for letter in dead_letters])
    return 0


def _row(letter: DeadLetter) -> tuple[object, ...]:
    reason = letter.reason
    error = f"{reason.get('error.class')}: {reason.get('error.message')}".split("\n", 1)[0]
    counts = (reason.get("batch"), reason.get("attempts"))
    return (*letter.source, letter.source_offset, *counts, error[:_MAX_ERROR_LENGTH])


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
    return None if data is None else bytes_to_json(data)


def _replay(arguments: argparse.Namespace) -> int:
    topic = _DeadLetterTopic(arguments)
    with closing(topic.replay_store) as store:
        claim = None
        if arguments.execute:
            owner = Owner("pykafka deadletter replay", process_name(), 0)
            claim = store.claim(owner, [arguments.topic])
        ranges = topic.ranges(include_replayed=False)
        counts = topic.count_by_target(ranges, arguments.to)
        if not arguments.json:
            print_table(("TO-TOPIC", "RECORDS"), sorted(counts.items()))
        if claim is not None:
            for chunk in _chunks(ranges):
                replay_dead_letters([*topic.read([chunk])], topic.options, arguments.to)
                store.write(
                    {chunk.tp: ProgressRecord(chunk.end, claim.owner, topic_id=chunk.topic_id)}
                )
    if arguments.json:
        print_json({"recordsByTopic": dict(counts), "executed": arguments.execute})
    elif arguments.execute:
        print(f"Sent: {counts.total()}")
    else:
        print("Dry run: nothing was sent. Use --execute to send these records.")
    return 0


def _add_topic(parser: argparse.ArgumentParser) -> None:
    add_brokers(parser)
    add_json(parser)
    parser.add_argument("--topic", required=True, help="the dead-letter topic")
    parser.add_argument(
        "--group",
        help="the consumer group that records the replayed offsets; default: <topic>-replay",
    )


def _add_all(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="include replayed dead letters")


def _add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--to",
        metavar="TOPIC",
        help="the topic to send to; default: the source topic of each record",
    )


_ACTIONS = (
    Action("list", "Show the dead letters of a topic, with their errors.", _list, (_add_all,)),
    Action(
        "replay",
        "Send the original records to their topics again. Each is sent once; an interrupted replay "
        f"may send up to {_CHUNK:,} records twice.",
        _replay,
        (_add_to, add_execute),
    ),
)

DEADLETTER = Command(
    "deadletter",
    "List or replay records that isolate_poison or onBadRecord=deadletter has set aside.",
    lambda parser: add_actions(parser, _ACTIONS, _add_topic),
    run_action,
)
