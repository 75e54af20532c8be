"""Lays out and starts the nodes of a KRaft cluster: ports, files, formatting, the Java command."""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING

from .jars import kafka_jars
from .java import find_java
from .ports import free_ports
from .properties import Node, Setting, server_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from .processes import Processes

FORMAT_SECONDS = 60.0

# A test broker lives for seconds to minutes: a quick start is worth more than a fast steady state.
_FLAGS = (
    "-Xms128m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaConfig=warn",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=warn",
)


def choose_nodes(brokers: int, first_port: int | None) -> tuple[Node, ...]:
    """Give every node its ports; with a first port, the brokers listen on it and the next ones."""
    ports = free_ports(2 * brokers)
    chosen = range(first_port, first_port + brokers) if first_port else ports[:brokers]
    return tuple(
        Node(number, port, controller_port)
        for number, (port, controller_port) in enumerate(
            zip(chosen, ports[brokers:], strict=True), start=1
        )
    )


def java_command(version: str) -> list[str]:
    """Return the start of a command that runs a class of this Kafka version."""
    jars = kafka_jars(version)
    return [str(find_java()), *_FLAGS, "-cp", f"{jars[0].parent}/*"]


def broker_command(java: list[str], folder: Path, node: Node) -> list[str]:
    """Return the command that runs one node."""
    return [*java, "kafka.Kafka", str(_properties_file(folder, node))]


def lay_out(
    java: list[str],
    processes: Processes,
    nodes: tuple[Node, ...],
    config: Callable[[Node], Mapping[str, Setting]],
) -> str:
    """Write every node's settings, format its data folder, and return the cluster's id."""
    folder = processes.folder
    cluster_id = _random_id()
    for node in nodes:
        settings = server_settings(node, nodes, data_folder(folder, node), config(node))
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        _properties_file(folder, node).write_text(text)
    first, *others = nodes
    _format(java, processes, first, cluster_id)
    for node in others:
        _copy_format(data_folder(folder, first), data_folder(folder, node), node, cluster_id)
    return cluster_id


def _format(java: list[str], processes: Processes, node: Node, cluster_id: str) -> None:
    properties = str(_properties_file(processes.folder, node))
    tool = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", properties]
    processes.run("format", [*java, *tool], FORMAT_SECONDS)


def _copy_format(source: Path, target: Path, node: Node, cluster_id: str) -> None:
    """Format a further node without the second that another run of Kafka's tool would take."""
    target.mkdir()
    (target / "meta.properties").write_text(
        f"version=1\nnode.id={node.id}\ncluster.id={cluster_id}\ndirectory.id={_random_id()}\n"
    )
    checkpoint = "bootstrap.checkpoint"
    (target / checkpoint).write_bytes((source / checkpoint).read_bytes())


def _properties_file(folder: Path, node: Node) -> Path:
    return folder / f"{node.name}.properties"


def data_folder(folder: Path, node: Node) -> Path:
    """Return where a node keeps its logs."""
    return folder / f"{node.name}-data"


def _random_id() -> str:
    """Return an id as Kafka writes them: 16 bytes in 22 characters, not led by a dash."""
    while (text := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        continue
    return text
