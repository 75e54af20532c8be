"""
`pykafka dev`: a local Kafka for experiments.
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, NoReturn

from pyspark_pykafka.cli.arguments import add_json, whole_number
from pyspark_pykafka.cli.command import Command
from pyspark_pykafka.cli.output import print_json
from pyspark_pykafka.testing import KAFKA_VERSION, KafkaCluster, ZooKeeper

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

CHECK_SECONDS = 1.0
#: Seconds until a broker that has ended, for example by kill, is restarted.
DOWN_SECONDS = 10.0

# Three brokers use the port and the two after it.
_MAX_PORT = 65_533


def _add_dev_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--brokers", type=int, choices=(1, 3), default=1, help="number of brokers, default: 1"
    )
    parser.add_argument(
        "--version", default=KAFKA_VERSION, help=f"Kafka version, default: {KAFKA_VERSION}"
    )
    parser.add_argument(
        "--port",
        type=whole_number(1, _MAX_PORT),
        help="port of the first broker, default: a free port",
    )
    parser.add_argument("--zookeeper", action="store_true", help="also run a ZooKeeper server")
    add_json(parser)


def _dev(arguments: argparse.Namespace) -> int:
    text = not arguments.json
    if text:
        print(f"Starting Kafka {arguments.version}; its jars are downloaded once.", flush=True)
    kafka = KafkaCluster(arguments.brokers, arguments.version, port=arguments.port)
    try:
        with contextlib.ExitStack() as servers:
            servers.enter_context(kafka)
            zookeeper = servers.enter_context(ZooKeeper()) if arguments.zookeeper else None
            if text:
                print(_how_to_connect(kafka, zookeeper), flush=True)
            else:
                hosts = None if zookeeper is None else zookeeper.hosts
                print_json({"bootstrap": kafka.bootstrap, "zookeeper": hosts})
            _until_interrupted(kafka)
    except KeyboardInterrupt:
        if text:
            print("Stopped; topics and data are gone.", flush=True)
    return 0


def _until_interrupted(
    kafka: KafkaCluster, sleep: Callable[[float], None] = time.sleep
) -> NoReturn:
    """
    Check the brokers until Ctrl-C or SIGTERM.

    A broker that has ended is restarted if another broker still runs; otherwise an error is raised.
    """
    while True:
        sleep(CHECK_SECONDS)
        exited = kafka.exited_nodes()
        if kafka.brokers == 1 or len(exited) == kafka.brokers:
            kafka.check()
        for node, code in exited.items():
            _say(f"broker {node} ended with exit code {code}, restarting it in {DOWN_SECONDS:g} s")
            sleep(DOWN_SECONDS)
            kafka.restart(node)
            _say(f"broker {node} is back")


def _say(line: str) -> None:
    print(f"pykafka dev: {line}", file=sys.stderr, flush=True)


def _how_to_connect(kafka: KafkaCluster, zookeeper: ZooKeeper | None) -> str:
    lines = [
        "",
        f"Kafka is ready:      {kafka.bootstrap}",
        *([f"ZooKeeper is ready:  {zookeeper.hosts}"] if zookeeper else []),
        "",
        "Topics are not created automatically:",
        "",
        f"    pykafka topic create --bootstrap-server {kafka.bootstrap} my-topic",
        f"    pykafka produce --bootstrap-server {kafka.bootstrap} --topic my-topic hello",
        "",
        "In Spark:",
        "",
        '    spark.readStream.format("pykafka")',
        f'        .option("kafka.bootstrap.servers", "{kafka.bootstrap}")',
        '        .option("subscribe", "my-topic")',
        '        .option("startingOffsets", "earliest")',
        "        .load()",
        "",
        "Ctrl-C stops it and deletes all its data.",
    ]
    return "\n".join(lines)


DEV = Command(
    "dev",
    "Run a local Kafka in the foreground until Ctrl-C.",
    _add_dev_arguments,
    _dev,
)
