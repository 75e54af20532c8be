"""
Downloads the jars of test brokers into a cache folder, with the Ivy that pyspark ships.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .java import find_java
from .processes import Processes, ServerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FETCH_SECONDS = 300.0
LOCK_POLL_SECONDS = 0.2

_IVY_MAVEN = "http://ant.apache.org/ivy/maven"

# Kafka's jars contain slf4j's API without an implementation: without this jar there is no log.
SLF4J_SIMPLE = "org.slf4j:slf4j-simple:1.7.36"
# The token provider was never published as 4.2.0; this older one works with the connector.
SPARK_CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)


class FetchError(RuntimeError):
    """
    Jars could not be downloaded.
    """


@dataclass(frozen=True, slots=True)
class MavenCoordinate:
    """
    A jar in a Maven repository; with `transitive`, its dependencies as well.

    A `classifier` names another jar of the same version, such as its tests.
    """

    group: str
    artifact: str
    version: str
    transitive: bool = False
    classifier: str = ""

    @classmethod
    def parse(cls, text: str, *, transitive: bool = False) -> MavenCoordinate:
        """
        Parse 'group:artifact:version'.
        """
        parts = text.split(":")
        if len(parts) != 3 or not all(parts):
            msg = f"{text!r} is not a Maven coordinate; it must be 'group:artifact:version'."
            raise ValueError(msg)
        group, artifact, version = parts
        return cls(group, artifact, version, transitive)


def spark_connector_jars() -> list[Path]:
    """
    Return the jars of Spark's JVM Kafka connector (4.2.0), downloaded on first use.
    """
    return fetch_jars(SPARK_CONNECTOR, cache_folder() / "spark-connector-4.2.0")


def kafka_jars(version: str) -> list[Path]:
    """
    Return the jars that run a broker of this version, downloaded on first use.
    """
    kafka = MavenCoordinate("org.apache.kafka", "kafka_2.13", version, transitive=True)
    coordinates = [kafka, MavenCoordinate.parse(SLF4J_SIMPLE)]
    return _fetch_once(coordinates, kafka_folder(version))


def kafka_folder(version: str) -> Path:
    """
    Return the folder of a version's jars, and of what is derived from them.
    """
    return cache_folder() / f"kafka-{version}"


def tiered_storage_jars(version: str) -> list[Path]:
    """
    Return the jars of Kafka's local tiered storage for tests, downloaded on first use.
    """
    jars = [
        MavenCoordinate("org.apache.kafka", artifact, version, classifier="test")
        for artifact in ("kafka-storage", "kafka-clients")
    ]
    return _fetch_once(jars, cache_folder() / f"kafka-tiered-storage-{version}")


def kafka_tools_jars(version: str) -> list[Path]:
    """
    Return the jars of Kafka's command-line tools, downloaded on first use.
    """
    tools = MavenCoordinate("org.apache.kafka", "kafka-tools", version)
    return [*_fetch_once([tools], cache_folder() / f"kafka-tools-{version}"), *kafka_jars(version)]


def fetch_jars(coordinates: Iterable[str], folder: Path) -> list[Path]:
    """
    Return the jars in a folder; download them first, without dependencies, if it does not exist.

    Coordinates are 'group:artifact:version'. The folder appears complete or not at all. If two
    processes request it at the same time, only one of them downloads the jars.
    """
    return _fetch_once([MavenCoordinate.parse(text) for text in coordinates], folder)


def cache_folder() -> Path:
    """
    Return the folder for jars: PYKAFKA_CACHE, else pykafka in the user's cache folder.
    """
    folder = os.environ.get("PYKAFKA_CACHE")
    if folder:
        return Path(folder).expanduser()
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "pykafka"


def pyspark_jars() -> Path:
    """
    Return the folder of jars inside the installed pyspark, without importing it.
    """
    spec = importlib.util.find_spec("pyspark")
    folder = Path(spec.origin).with_name("jars") if spec and spec.origin else None
    if folder is None or not folder.is_dir():
        msg = (
            "pyspark with its jars is not installed, and test servers use its Ivy and ZooKeeper; "
            "install it with: pip install pyspark"
        )
        raise FetchError(msg)
    return folder


def _fetch_once(coordinates: list[MavenCoordinate], folder: Path) -> list[Path]:
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.with_name(f".{folder.name}.lock")):
            if not folder.is_dir():
                _fetch(coordinates, folder)
    return sorted(folder.glob("*.jar"))


def _fetch(coordinates: list[MavenCoordinate], folder: Path) -> None:
    # Beside the target folder, since a rename is atomic only within one file system.
    ivy = Processes("ivy", folder.parent)
    try:
        (ivy.folder / "ivy.xml").write_text(ivy_file(coordinates))
        _run_ivy(ivy)
        (ivy.folder / "jars").rename(folder)
    except ServerError as error:
        msg = f"The jars for {folder.name} could not be downloaded. {_ADVICE}\n{error}"
        raise FetchError(msg) from error
    finally:
        ivy.close()


def _run_ivy(ivy: Processes) -> None:
    command = _ivy_command(ivy.folder)
    try:
        ivy.run("ivy", command, FETCH_SECONDS)
    except ServerError:
        # A second run repeats only the downloads that failed, often one of fifty.
        ivy.send("ivy", signal.SIGKILL)
        ivy.run("ivy", command, FETCH_SECONDS)


def ivy_file(coordinates: list[MavenCoordinate]) -> str:
    """
    Return an Ivy file with these jars as dependencies.
    """
    dependencies = "\n".join(map(_dependency, coordinates))
    return (
        f'<ivy-module version="2.0" xmlns:m="{_IVY_MAVEN}">\n'
        '  <info organisation="pykafka" module="testing"/>\n'
        '  <configurations><conf name="default"/></configurations>\n'
        f"  <dependencies>\n{dependencies}\n  </dependencies>\n</ivy-module>\n"
    )


def _dependency(jar: MavenCoordinate) -> str:
    """
    Return the element of one jar; a classifier needs a nested artifact.
    """
    element = (
        f'    <dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}" '
        f'conf="default-&gt;default" transitive="{str(jar.transitive).lower()}"'
    )
    if not jar.classifier:
        return f"{element}/>"
    artifact = f'<artifact name="{jar.artifact}" type="jar" m:classifier="{jar.classifier}"/>'
    return f"{element}>{artifact}</dependency>"


def _ivy_command(work: Path) -> list[str]:
    ivy = next(iter(sorted(pyspark_jars().glob("ivy-*.jar"))), None)
    if ivy is None:
        msg = f"No ivy-*.jar is in {pyspark_jars()}; reinstall pyspark."
        raise FetchError(msg)
    settings = os.environ.get("PYKAFKA_IVY_SETTINGS")
    return [
        str(find_java()), "-cp", str(ivy), "org.apache.ivy.Main",
        *(["-settings", settings] if settings else []),
        "-cache", str(work / "cache"),
        "-ivy", str(work / "ivy.xml"),
        "-confs", "default",
        "-retrieve", f"{work}/jars/[artifact]-[revision](-[classifier]).[ext]",
    ]  # fmt: skip


_ADVICE = (
    "Check that this machine reaches Maven Central. For a mirror, set PYKAFKA_IVY_SETTINGS to an "
    "Ivy settings file; for a proxy, set JAVA_TOOL_OPTIONS."
)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """
    Hold a file lock, which the operating system also releases when this process ends.
    """
    deadline = time.monotonic() + 2 * FETCH_SECONDS
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    msg = (
                        f"Another process has held {path} for too long; end that process, then "
                        "retry."
                    )
                    raise FetchError(msg) from None
                time.sleep(LOCK_POLL_SECONDS)
        yield
