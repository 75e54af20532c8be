"""`pykafka topic`: creates, shows and deletes topics."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from pyspark_pykafka.cli.arguments import (
    add_brokers,
    add_execute,
    add_json,
    add_timeout,
    broker_options,
    timeout_options,
)
from pyspark_pykafka.cli.command import Action, Command, add_actions, run_action
from pyspark_pykafka.cli.output import print_table
from pyspark_pykafka.engines.metadata import MetadataClient
from pyspark_pykafka.engines.selection import metadata_backend
from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.options import Subscribe, parse_stream_source

if TYPE_CHECKING:
    from pyspark_pykafka.engines.metadata_contract import MetadataBackend
    from pyspark_pykafka.options import SourceOptions

_BROKER_DEFAULT = -1


def _options(arguments: argparse.Namespace) -> SourceOptions:
    options = {**timeout_options(arguments), **broker_options(arguments)}
    return parse_stream_source({**options, "subscribe": arguments.topic})


def _backend(options: SourceOptions) -> MetadataBackend:
    return metadata_backend(options.kafka, options.isolation_level, options.engine)


def _create(arguments: argparse.Namespace) -> int:
    from pyspark_pykafka.engines.librdkafka.admin import RetryingAdmin

    options, topic = _options(arguments), arguments.topic
    # Also reports brokers that do not answer, without the log of librdkafka's attempts.
    exists = bool(_backend(options).describe_topics((topic,)))
    created = not exists and RetryingAdmin(options.kafka).create_topic(
        topic,
        dict(arguments.config),
        f"creating the topic {topic}",
        partitions=arguments.partitions,
        replication_factor=arguments.replication_factor,
    )
    if not created:
        raise OptionsError((f"the topic '{topic}' exists already; choose another name",))
    if arguments.json:
        print(json.dumps({"topic": topic, "created": True}))
    else:
        print(f"Created the topic {topic}.")
    return 0


def _describe(arguments: argparse.Namespace) -> int:
    options = _options(arguments)
    client = MetadataClient(_backend(options), options.fetch_offset_retry)
    assignment = client.assignment(Subscribe((arguments.topic,)))
    tps = assignment.partitions
    starts, ends = client.log_start_offsets(tps), client.end_offsets(tps)
    leaders = {tp: f"{host}:{port}" for tp, (host, port) in client.leader_addresses(tps).items()}
    rows = [(tp.partition, leaders.get(tp), starts.get(tp), ends.get(tp)) for tp in tps]
    names = ("partition", "leader", "start", "end")
    if arguments.json:
        partitions = [dict(zip(names, row, strict=True)) for row in rows]
        topic_id = assignment.topic_ids.get(arguments.topic)
        description = {"topic": arguments.topic, "id": topic_id, "partitions": partitions}
        print(json.dumps(description, indent=2))
    else:
        print_table([name.upper() for name in names], rows)
    return 0


def _delete(arguments: argparse.Namespace) -> int:
    from pyspark_pykafka.engines.librdkafka.admin import RetryingAdmin

    _describe(arguments)
    if not arguments.execute:
        if not arguments.json:
            print("Dry run: nothing was changed. Use --execute to delete the topic.")
        return 0
    if not RetryingAdmin(_options(arguments).kafka).delete_topic(arguments.topic):
        raise OptionsError((f"the topic '{arguments.topic}' was deleted by another client",))
    if not arguments.json:
        print(f"Deleted the topic {arguments.topic}.")
    return 0


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    add_brokers(parser)
    add_timeout(parser)
    add_json(parser)


def _add_creation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--partitions", type=_count, default=1, help="default: 1")
    parser.add_argument(
        "--replication-factor",
        type=_count,
        default=_BROKER_DEFAULT,
        help="default: that of the brokers",
    )
    parser.add_argument(
        "--config",
        type=_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the topic, such as retention.ms=3600000; may be repeated",
    )


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        msg = f"{text!r} is not valid; it must be a number, at least 1"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        msg = f"{text!r} is not valid; it must be NAME=VALUE"
        raise argparse.ArgumentTypeError(msg)
    return name, value


TOPIC = Command(
    "topic",
    "Create, describe or delete a topic.",
    lambda parser: add_actions(
        parser,
        (
            Action("create", "Create a topic.", _create, (_add_creation,)),
            Action("describe", "Show the leader and the offsets of each partition.", _describe),
            Action("delete", "Delete a topic with all its records.", _delete, (add_execute,)),
        ),
        _add_common,
    ),
    run_action,
)
