"""
The arguments that select a query's progress store.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyspark_pykafka.cli.arguments import add_brokers, add_json, read_options
from pyspark_pykafka.errors import ProgressError
from pyspark_pykafka.options import ZooKeeperNodes, parse_stream_source
from pyspark_pykafka.progress.factory import read_progress_records

if TYPE_CHECKING:
    import argparse

    from pyspark_pykafka.options import SourceOptions
    from pyspark_pykafka.progress.store import Records

# A password on the command line would be visible to everyone who can list processes.
DIGEST_VARIABLE = "PYKAFKA_ZOOKEEPER_DIGEST"

DRY_RUN = "Dry run: nothing was changed. Use --execute to"


def add_store_arguments(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """
    Add the arguments for the brokers and for a query's progress store.
    """
    add_brokers(parser)
    add_json(parser)
    store = parser.add_mutually_exclusive_group(required=required)
    store.add_argument("--group", help="the consumer group of the query")
    store.add_argument("--zookeeper", metavar="HOSTS", help="the ZooKeeper servers of the query")
    parser.add_argument("--id", help="the query's zookeeperId; with --zookeeper")
    parser.add_argument("--root", help="the query's zookeeperRoot; default: /pykafka")
    parser.epilog = f"ZooKeeper credentials are read from {DIGEST_VARIABLE}, as user:password."


def store_options(arguments: argparse.Namespace) -> SourceOptions:
    """
    Return the options of a query with the store that the arguments name.
    """
    options = {**read_options(arguments), "subscribePattern": "."}
    if arguments.group is not None:
        options |= {"progressStore": "consumerGroup", "kafka.group.id": arguments.group}
    elif arguments.zookeeper is not None:
        zookeeper = {
            "progressStore": "zookeeper",
            "zookeeperHosts": arguments.zookeeper,
            "zookeeperId": arguments.id,
            "zookeeperRoot": arguments.root,
            "zookeeperDigest": os.environ.get(DIGEST_VARIABLE),
        }
        options |= {name: value for name, value in zookeeper.items() if value is not None}
    return parse_stream_source(options)


def existing_records(options: SourceOptions) -> Records:
    """
    Return the records of the store; raise :class:`ProgressError` if it has none.
    """
    records = read_progress_records(options)
    if not records:
        raise no_store_error(options)
    return records


def no_store_error(options: SourceOptions, topics: str = "") -> ProgressError:
    """
    Return the error for a store that does not exist or has no records.

    ``topics`` is a text such as ``" of 't'"`` if the store only lacks the records of some topics.
    Brokers do not distinguish a consumer group that does not exist from one without offsets.
    """
    store = options.progress_store
    name, argument = (
        (f"the ZooKeeper node {store.root}/{store.id}", "--id and --root")
        if isinstance(store, ZooKeeperNodes)
        else (f"the consumer group '{options.kafka.get('group.id')}'", "--group")
    )
    msg = f"{name} does not exist, or has no recorded offsets{topics}; correct {argument}"
    return ProgressError("PROGRESS_NOT_FOUND", msg)
