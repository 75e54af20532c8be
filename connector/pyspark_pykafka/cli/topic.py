"""
`pykafka topic`: creates, shows and deletes topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_pykafka.cli.arguments import (
    add_brokers,
    add_execute,
    add_json,
    add_settings,
    broker_options,
    whole_number,
)
from pyspark_pykafka.cli.command import Action, Command, add_actions, run_action
from pyspark_pykafka.cli.output import print_json, print_table
from pyspark_pykafka.engines.first_contact import shared_api_timeout
from pyspark_pykafka.engines.metadata import MetadataClient
from pyspark_pykafka.engines.selection import metadata_backend
from pyspark_pykafka.errors import PykafkaError, UnknownTopicError
from pyspark_pykafka.options import Subscribe, parse_stream_source

if TYPE_CHECKING:
    import argparse

    from pyspark_pykafka.engines.metadata_contract import MetadataBackend
    from pyspark_pykafka.options import SourceOptions

_BROKER_DEFAULT = -1
_COLUMNS = ("partition", "leader", "start", "end")


def _options(arguments: argparse.Namespace) -> SourceOptions:
    return parse_stream_source({**broker_options(arguments), "subscribe": arguments.topic})


def _backend(options: SourceOptions) -> MetadataBackend:
    return metadata_backend(options.kafka, options.isolation_level, options.engine)


def _create(arguments: argparse.Namespace) -> int:
    from pyspark_pykafka.engines.librdkafka.admin import RetryingAdmin

    options, topic = _options(arguments), arguments.topic
    # This also reports unreachable brokers, without librdkafka's log of each attempt.
    exists = bool(_backend(options).describe_topics((topic,)))
    created = not exists and RetryingAdmin(options.kafka).create_topic(
        topic,
        dict(arguments.config),
        f"creating the topic {topic}",
        partitions=arguments.partitions,
        replication_factor=arguments.replication_factor,
    )
    if not created and not arguments.if_not_exists:
        msg = f"the topic '{topic}' exists already; choose another name, or use --if-not-exists"
        raise PykafkaError(msg)
    if arguments.json:
        print_json({"topic": topic, "created": created})
    else:
        print(f"Created the topic {topic}." if created else f"The topic {topic} exists already.")
    return 0


def _describe(arguments: argparse.Namespace) -> int:
    description, rows = _description(arguments)
    if arguments.json:
        print_json(description)
    else:
        print_table([name.upper() for name in _COLUMNS], rows)
    return 0


def _description(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    options = _options(arguments)
    client = MetadataClient(_backend(options), options.fetch_offset_retry)
    with shared_api_timeout(options.kafka):
        assignment = client.assignment(Subscribe((arguments.topic,)))
        tps = assignment.partitions
        starts, ends = client.log_start_offsets(tps), client.end_offsets(tps)
        addresses = client.leader_addresses(tps)
    leaders = {tp: f"{host}:{port}" for tp, (host, port) in addresses.items()}
    rows = [(tp.partition, leaders.get(tp), starts.get(tp), ends.get(tp)) for tp in tps]
    partitions = [dict(zip(_COLUMNS, row, strict=True)) for row in rows]
    topic_id = assignment.topic_ids.get(arguments.topic)
    return {"topic": arguments.topic, "id": topic_id, "partitions": partitions}, rows


def _delete(arguments: argparse.Namespace) -> int:
    from pyspark_pykafka.engines.librdkafka.admin import RetryingAdmin

    description, rows = _description(arguments)
    if not arguments.json:
        print_table([name.upper() for name in _COLUMNS], rows)
    if arguments.execute:
        admin = RetryingAdmin(_options(arguments).kafka)
        if not admin.delete_topic(arguments.topic):
            msg = f"the topic '{arguments.topic}' was deleted by another client"
            raise UnknownTopicError(msg)
    if arguments.json:
        print_json({**description, "executed": arguments.execute})
    elif arguments.execute:
        print(f"Deleted the topic {arguments.topic}.")
    else:
        print("Dry run: nothing was changed. Use --execute to delete the topic.")
    return 0


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    add_brokers(parser)
    add_json(parser)


def _add_creation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--if-not-exists", action="store_true", help="leave an existing topic as it is"
    )
    parser.add_argument(
        "--partitions", type=whole_number(1), default=1, help="number of partitions; default: 1"
    )
    parser.add_argument(
        "--replication-factor",
        type=whole_number(1),
        default=_BROKER_DEFAULT,
        help="replicas of each partition; default: the brokers' default.replication.factor",
    )
    add_settings(
        parser,
        "--config",
        "a setting of the topic, such as retention.ms=3600000; may be repeated",
    )


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
