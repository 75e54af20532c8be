"""
Keeps an archive of the classes that a broker loads, which saves much of the CPU time of a start.

This is Java's class data sharing. The archive is written once for each Kafka version and each Java,
by a broker of its own, into the folder of the version's jars.
"""

from __future__ import annotations

import logging
import signal
from contextlib import closing
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from . import readiness
from .external import ExternalCluster
from .jars import FetchError, cache_folder, kafka_folder, kafka_jars, locked
from .java import find_java, java_report
from .kraft import assign_ports, broker_command, java_command, prepare_nodes
from .processes import Processes, ServerError

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger("pyspark_pykafka")

START_SECONDS = 90.0
#: Java writes the archive at the end of the broker's shutdown.
WRITE_SECONDS = 60.0
#: Java's exit code after a shutdown by SIGTERM.
TERMINATED = 128 + signal.SIGTERM


def archive_options(version: str) -> list[str]:
    """
    Return the options that let Java use the archive of this version; none without an archive.

    The class path must begin with the version's jars. Java ignores an archive that does not fit.
    """
    archive = _find(version)
    if archive is None or not archive.stat().st_size:
        return []
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off"]


def ensure_archive(version: str) -> None:
    """
    Write the archive of this version, unless it exists or this Java cannot use one.

    A failure is logged only, since a broker starts without an archive, too.
    """
    if _find(version) is not None or "sharing" not in java_report(find_java()):
        return
    try:
        with locked(kafka_folder(version) / ".classes.lock"):
            if _find(version) is None:
                _write(version)
    except (FetchError, OSError, ServerError) as error:
        logger.info("Kafka %s starts without an archive of its classes: %s", version, error)


def _find(version: str) -> Path | None:
    """
    Return the archive, or the empty file that says that this Java could not write one.

    The name ends with the size: with an archive that is cut off, Java 17 would crash.
    """
    files = kafka_folder(version).glob(f"{_name(version)}-*.jsa")
    return next((file for file in files if file.stem.endswith(f"-{file.stat().st_size}")), None)


def _name(version: str) -> str:
    """
    Return a name that changes with what the archive must fit: the Java, its options, the jars.
    """
    stats = [(jar.stat().st_size, int(jar.stat().st_mtime)) for jar in kafka_jars(version)]
    text = f"{java_report(find_java())} {java_command(version)} {stats}"
    return f"classes-{sha256(text.encode()).hexdigest()[:16]}"


def _write(version: str) -> None:
    """
    Run a broker that writes the archive when it is shut down.
    """
    # Inside the cache, since a rename is atomic only within one file system.
    with closing(Processes("classes", cache_folder())) as processes:
        archive = processes.folder / "classes.jsa"
        is_written = _run_broker(version, processes, archive) and archive.exists()
        size = archive.stat().st_size if is_written else 0
        target = kafka_folder(version) / f"{_name(version)}-{size}.jsa"
        if is_written:
            archive.rename(target)
        else:
            target.touch()


def _run_broker(version: str, processes: Processes, archive: Path) -> bool:
    """
    Start a broker and shut it down; return whether its process ended in an orderly way.
    """
    java, *options = java_command(version)
    (node,) = nodes = assign_ports(1, None)
    cluster_id = prepare_nodes([java, *options], processes, version, nodes, lambda _: {})
    recording = [java, f"-XX:ArchiveClassesAtExit={archive}", *options]
    processes.start(node.name, broker_command(recording, processes.folder, node))
    admin = ExternalCluster(node.address).admin
    is_missing = partial(readiness.missing_brokers, admin, {node.id}, cluster_id)
    processes.wait_ready(node.name, is_missing, START_SECONDS)
    processes.end(node.name, signal.SIGTERM, WRITE_SECONDS)
    return processes.exit_code(node.name) == TERMINATED
