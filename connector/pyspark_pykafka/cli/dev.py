"""`pykafka dev`: a Kafka to try things on."""

from __future__ import annotations

import argparse
import contextlib
import threading
from typing import NoReturn

from pyspark_pykafka.cli.command import Command
from pyspark_pykafka.testing import KAFKA_VERSION, KafkaCluster, ZooKeeper

CHECK_SECONDS = 1.0


def _add_dev_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="default: 1")
    parser.add_argument(
        "--version", default=KAFKA_VERSION, help=f"Kafka's version, default: {KAFKA_VERSION}"
    )
    parser.add_argument(
        "--port", type=_port, help="the first broker's port, default: one that is free"
    )
    parser.add_argument("--zookeeper", action="store_true", help="run a ZooKeeper as well")


def _dev(chosen: argparse.Namespace) -> int:
    print(f"Starting Kafka {chosen.version}; its jars are fetched once.", flush=True)
    kafka = KafkaCluster(chosen.brokers, chosen.version, port=chosen.port)
    try:
        with contextlib.ExitStack() as servers:
            servers.enter_context(kafka)
            zookeeper = servers.enter_context(ZooKeeper()) if chosen.zookeeper else None
            print(_how_to_connect(kafka, zookeeper), flush=True)
            _until_interrupted(kafka)
    except KeyboardInterrupt:
        print("Stopped; topics and data are gone.", flush=True)
    return 0


def _until_interrupted(kafka: KafkaCluster) -> NoReturn:
    """Watch the brokers until Ctrl-C or SIGTERM; one that ends by itself is an error."""
    waiting = threading.Event()
    while True:
        waiting.wait(CHECK_SECONDS)
        kafka.check()


def _how_to_connect(kafka: KafkaCluster, zookeeper: ZooKeeper | None) -> str:
    lines = [
        "",
        f"Kafka is ready:      {kafka.bootstrap}",
        *([f"ZooKeeper is ready:  {zookeeper.hosts}"] if zookeeper else []),
        "",
        "In Spark (topics are not made by themselves; make one with Kafka's tools or a client):",
        "",
        '    spark.readStream.format("pykafka")',
        f'        .option("kafka.bootstrap.servers", "{kafka.bootstrap}")',
        '        .option("subscribe", "my-topic")',
        '        .option("startingOffsets", "earliest")',
        "        .load()",
        "",
        "Ctrl-C ends it and removes all its data.",
    ]
    return "\n".join(lines)


def _port(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 65533:
        msg = f"{text!r} is no port; it must be a number from 1 to 65533"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


DEV = Command(
    "dev",
    "Run Kafka in the foreground, to try things on, until Ctrl-C.",
    _add_dev_arguments,
    _dev,
)
