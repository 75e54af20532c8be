"""
Prepares the nodes of a KRaft cluster: ports, settings, formatted storage, Java command.
"""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING

from .jars import kafka_jars, tiered_storage_jars
from .java import find_java
from .ports import free_ports
from .properties import Node, Setting, server_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from .processes import Processes

FORMAT_SECONDS = 60.0

# A test broker runs for seconds to minutes: a quick start matters more than peak throughput.
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


def assign_ports(brokers: int, first_port: int | None) -> tuple[Node, ...]:
    """
    Return the nodes with free ports, or with the broker ports that begin at `first_port`.
    """
    ports = free_ports(2 * brokers)
    broker_ports = range(first_port, first_port + brokers) if first_port else ports[:brokers]
    return tuple(
        Node(number, port, controller_port)
        for number, (port, controller_port) in enumerate(
            zip(broker_ports, ports[brokers:], strict=True), start=1
        )
    )


def java_command(version: str, *, tiered: bool = False) -> list[str]:
    """
    Return the command that runs a class of this Kafka version, up to the name of the class.
    """
    jars = [kafka_jars(version), tiered_storage_jars(version) if tiered else []]
    class_path = ":".join(f"{group[0].parent}/*" for group in jars if group)
    return [str(find_java()), *_FLAGS, "-cp", class_path]


def broker_command(java: list[str], folder: Path, node: Node) -> list[str]:
    """
    Return the command that runs one node.
    """
    return [*java, "kafka.Kafka", str(_properties_file(folder, node))]


def prepare_nodes(
    java: list[str],
    processes: Processes,
    nodes: tuple[Node, ...],
    config: Callable[[Node], Mapping[str, Setting]],
) -> str:
    """
    Write the settings of all nodes, format their storage, and return the cluster id.
    """
    folder = processes.folder
    cluster_id = _random_id()
    for node in nodes:
        settings = server_settings(node, nodes, data_folder(folder, node), config(node))
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        _properties_file(folder, node).write_text(text)
    first, *rest = nodes
    _format(java, processes, first, cluster_id)
    for node in rest:
        _copy_format(data_folder(folder, first), data_folder(folder, node), node, cluster_id)
    return cluster_id


def _format(java: list[str], processes: Processes, node: Node, cluster_id: str) -> None:
    properties = str(_properties_file(processes.folder, node))
    tool = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", properties]
    processes.run("format", [*java, *tool], FORMAT_SECONDS)


def _copy_format(source: Path, target: Path, node: Node, cluster_id: str) -> None:
    """
    Format another node's storage by copying: Kafka's tool would take a second for each node.
    """
    target.mkdir()
    (target / "meta.properties").write_text(
        f"version=1\nnode.id={node.id}\ncluster.id={cluster_id}\ndirectory.id={_random_id()}\n"
    )
    checkpoint = "bootstrap.checkpoint"
    (target / checkpoint).write_bytes((source / checkpoint).read_bytes())


def _properties_file(folder: Path, node: Node) -> Path:
    return folder / f"{node.name}.properties"


def data_folder(folder: Path, node: Node) -> Path:
    """
    Return the folder of a node's partition logs.
    """
    return folder / f"{node.name}-data"


def _random_id() -> str:
    """
    Return a Kafka UUID: 16 bytes in 22 characters, not starting with a dash.
    """
    while (text := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        continue
    return text
