"""
`pykafka ui`: serves a web page with the queries of a cluster.
"""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING

from pyspark_pykafka.cli.arguments import add_brokers, add_json, read_options, seconds
from pyspark_pykafka.cli.command import Command
from pyspark_pykafka.cli.progress_store import DIGEST_VARIABLE
from pyspark_pykafka.errors import OptionsError, ProgressError
from pyspark_pykafka.ui.cluster_source import ClusterSource
from pyspark_pykafka.ui.server import PageServer

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

_DEFAULT_SECONDS = 10
_PORT = 4044


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_brokers(parser)
    parser.add_argument(
        "--group",
        action="append",
        default=[],
        help="the consumer group of a query; may be repeated; default: all groups in which queries "
        "record progress (an error if the cluster has more than 100 groups)",
    )
    parser.add_argument("--zookeeper", metavar="HOSTS", help="the ZooKeeper servers of queries")
    parser.add_argument(
        "--id", action="append", default=[], help="a query's zookeeperId; may be repeated"
    )
    parser.add_argument("--root", help="the queries' zookeeperRoot; default: /pykafka")
    parser.add_argument(
        "--dead-letters",
        action="append",
        default=[],
        metavar="TOPIC",
        help="a dead-letter topic; may be repeated",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=_PORT,
        help=f"port to serve on; 0 chooses a free one; default: {_PORT}",
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; default: 127.0.0.1"
    )
    parser.add_argument(
        "--seconds",
        type=seconds,
        default=_DEFAULT_SECONDS,
        help=f"how often the cluster is read; default: {_DEFAULT_SECONDS}",
    )
    add_json(parser)
    parser.epilog = f"ZooKeeper credentials are read from {DIGEST_VARIABLE}, as user:password."


def _ui(arguments: argparse.Namespace) -> int:
    if bool(arguments.zookeeper) != bool(arguments.id):
        msg = "--zookeeper and --id belong together; give both, or neither"
        raise OptionsError((msg,))
    source = ClusterSource(read_options(arguments), [*_stores(arguments)], arguments.dead_letters)
    # Read once before serving, so that wrong addresses and names end the command with an error.
    data = source()
    without_offsets = [query.name for query in data.queries if not query.partitions]
    if without_offsets:
        msg = (
            f"no offsets are recorded for {', '.join(without_offsets)}; correct --group or --id, "
            "or start the query first"
        )
        raise ProgressError("PROGRESS_NOT_FOUND", msg)
    if arguments.json:
        print(json.dumps(data.to_json(), indent=2))
        return 0
    server = PageServer(source, arguments.host, arguments.port, seconds=arguments.seconds)
    print(f"The page is at {server.url}", flush=True)
    try:
        threading.Event().wait()
    finally:
        server.close()
    return 0


def _stores(arguments: argparse.Namespace) -> Iterator[dict[str, str]]:
    """
    Yield the options of each progress store that the arguments name.
    """
    for group in arguments.group:
        yield {"progressStore": "consumerGroup", "kafka.group.id": group}
    for name in arguments.id:
        options = {
            "progressStore": "zookeeper",
            "zookeeperHosts": arguments.zookeeper,
            "zookeeperId": name,
            "zookeeperRoot": arguments.root,
            "zookeeperDigest": os.environ.get(DIGEST_VARIABLE),
        }
        yield {name: value for name, value in options.items() if value is not None}


UI = Command(
    "ui",
    "Serve a web page with the queries of a cluster, their lag and failures, until Ctrl-C; with "
    "--json print its data once.",
    _add_arguments,
    _ui,
)
