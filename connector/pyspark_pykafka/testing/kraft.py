"""
Prepares the nodes of a KRaft cluster: ports, settings, formatted storage, Java command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .jars import kafka_jars, tiered_storage_jars
from .java import find_java
from .ports import free_ports
from .properties import Node, Setting, server_settings
from .storage_format import (
    CHECKPOINT,
    cache_bootstrap_checkpoint,
    cached_bootstrap_checkpoint,
    may_change_storage_format,
    random_id,
    write_format,
)

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
    jars = [*kafka_jars(version), *(tiered_storage_jars(version) if tiered else [])]
    return [str(find_java()), *_FLAGS, "-cp", ":".join(map(str, jars))]


def broker_command(java: list[str], folder: Path, node: Node) -> list[str]:
    """
    Return the command that runs one node.
    """
    return [*java, "kafka.Kafka", str(_properties_file(folder, node))]


def prepare_nodes(
    java: list[str],
    processes: Processes,
    version: str,
    nodes: tuple[Node, ...],
    config: Callable[[Node], Mapping[str, Setting]],
) -> str:
    """
    Write the settings of all nodes, format their storage, and return the cluster id.
    """
    cluster_id = random_id()
    configs = [config(node) for node in nodes]
    for node, overrides in zip(nodes, configs, strict=True):
        data = data_folder(processes.folder, node)
        settings = server_settings(node, nodes, data, overrides)
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        _properties_file(processes.folder, node).write_text(text)
    is_usual = not any(map(may_change_storage_format, configs))
    _format(java, processes, nodes, cluster_id, version if is_usual else None)
    return cluster_id


def _format(
    java: list[str],
    processes: Processes,
    nodes: tuple[Node, ...],
    cluster_id: str,
    usual_of: str | None,
) -> None:
    """
    Format the storage of all nodes; Kafka's tool runs once at most, for the first node.

    `usual_of` is the version whose usual format is written, or None for another format.
    """
    first, *rest = nodes
    formatted = data_folder(processes.folder, first)
    checkpoint = cached_bootstrap_checkpoint(usual_of) if usual_of else None
    if checkpoint is not None:
        write_format(formatted, first.id, cluster_id, checkpoint)
    else:
        _run_format_tool(java, processes, first, cluster_id)
        if usual_of:
            cache_bootstrap_checkpoint(usual_of, formatted)
    for node in rest:
        folder = data_folder(processes.folder, node)
        write_format(folder, node.id, cluster_id, (formatted / CHECKPOINT).read_bytes())


def _run_format_tool(java: list[str], processes: Processes, node: Node, cluster_id: str) -> None:
    properties = str(_properties_file(processes.folder, node))
    tool = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", properties]
    processes.run("format", [*java, *tool], FORMAT_SECONDS)


def _properties_file(folder: Path, node: Node) -> Path:
    return folder / f"{node.name}.properties"


def data_folder(folder: Path, node: Node) -> Path:
    """
    Return the folder of a node's partition logs.
    """
    return folder / f"{node.name}-data"
