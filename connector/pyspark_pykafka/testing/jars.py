"""Fetches the jars of test brokers once, with the Ivy that pyspark ships, into a cache folder."""

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

# Kafka's own jars bring slf4j's interface without anything behind it: no log without this one.
LOG_WRITER = "org.slf4j:slf4j-simple:1.7.36"
# The connector of 4.2.0 runs with this older token provider: 4.2.0 of it was never published.
SPARK_CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)


class FetchError(RuntimeError):
    """The jars could not be fetched."""


@dataclass(frozen=True, slots=True)
class MavenCoordinate:
    """
    A jar's name in a Maven repository; with `transitive`, all that it needs as well.

    A `classifier` names another jar of the same version, such as its tests.
    """

    group: str
    artifact: str
    version: str
    transitive: bool = False
    classifier: str = ""

    @classmethod
    def parse(cls, text: str, *, transitive: bool = False) -> MavenCoordinate:
        """Read 'group:artifact:version'."""
        parts = text.split(":")
        if len(parts) != 3 or not all(parts):
            msg = f"{text!r} is no jar's name; it must be 'group:artifact:version'."
            raise ValueError(msg)
        group, artifact, version = parts
        return cls(group, artifact, version, transitive)


def spark_connector_jars() -> list[Path]:
    """Return Spark's own JVM Kafka connector (4.2.0) and what it needs, fetched at first use."""
    return fetch_jars(SPARK_CONNECTOR, cache_folder() / "spark-connector-4.2.0")


def kafka_jars(version: str) -> list[Path]:
    """Return the jars that run a broker of this version, fetched at first use."""
    kafka = MavenCoordinate("org.apache.kafka", "kafka_2.13", version, transitive=True)
    coordinates = [kafka, MavenCoordinate.parse(LOG_WRITER)]
    return _fetch_once(coordinates, cache_folder() / f"kafka-{version}")


def tiered_storage_jars(version: str) -> list[Path]:
    """Return the jars of Kafka's own test storage for tiered topics, fetched at first use."""
    jars = [
        MavenCoordinate("org.apache.kafka", artifact, version, classifier="test")
        for artifact in ("kafka-storage", "kafka-clients")
    ]
    return _fetch_once(jars, cache_folder() / f"kafka-tiered-storage-{version}")


def kafka_tools_jars(version: str) -> list[Path]:
    """Return the jars of Kafka's own command-line tools, fetched at first use."""
    tools = MavenCoordinate("org.apache.kafka", "kafka-tools", version)
    return [*_fetch_once([tools], cache_folder() / f"kafka-tools-{version}"), *kafka_jars(version)]


def fetch_jars(coordinates: Iterable[str], folder: Path) -> list[Path]:
    """
    Fetch exactly these jars, without what they depend on, into a folder, unless it exists.

    Coordinates are 'group:artifact:version'. The folder appears whole or not at all, and two
    processes that want it at the same time fetch it once.
    """
    return _fetch_once([MavenCoordinate.parse(text) for text in coordinates], folder)


def cache_folder() -> Path:
    """Return where jars are kept: PYKAFKA_CACHE, else pykafka in the user's cache folder."""
    chosen = os.environ.get("PYKAFKA_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "pykafka"


def pyspark_jars() -> Path:
    """Return the folder of jars inside the installed pyspark, without importing it."""
    spec = importlib.util.find_spec("pyspark")
    folder = Path(spec.origin).with_name("jars") if spec and spec.origin else None
    if folder is None or not folder.is_dir():
        msg = (
            "pyspark with its jars is not installed here; test servers take Ivy and ZooKeeper "
            "from it. Install it with: pip install pyspark"
        )
        raise FetchError(msg)
    return folder


def _fetch_once(coordinates: list[MavenCoordinate], folder: Path) -> list[Path]:
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_name(f".{folder.name}.lock")):
            if not folder.is_dir():
                _fetch(coordinates, folder)
    return sorted(folder.glob("*.jar"))


def _fetch(coordinates: list[MavenCoordinate], folder: Path) -> None:
    # Beside the folder to be made, since a folder is renamed in one step only within a disk.
    ivy = Processes("ivy", folder.parent)
    try:
        (ivy.folder / "ivy.xml").write_text(ivy_file(coordinates))
        _run_ivy(ivy)
        (ivy.folder / "jars").rename(folder)
    except ServerError as error:
        msg = f"The jars for {folder.name} could not be fetched. {_ADVICE}\n{error}"
        raise FetchError(msg) from error
    finally:
        ivy.close()


def _run_ivy(ivy: Processes) -> None:
    command = _ivy_command(ivy.folder)
    try:
        ivy.run("ivy", command, FETCH_SECONDS)
    except ServerError:
        # Of fifty downloads one may be dropped; those that came are not fetched again.
        ivy.send("ivy", signal.SIGKILL)
        ivy.run("ivy", command, FETCH_SECONDS)


def ivy_file(coordinates: list[MavenCoordinate]) -> str:
    """Return the Ivy file that asks for these jars."""
    wanted = "\n".join(map(_dependency, coordinates))
    return (
        f'<ivy-module version="2.0" xmlns:m="{_IVY_MAVEN}">\n'
        '  <info organisation="pykafka" module="testing"/>\n'
        '  <configurations><conf name="default"/></configurations>\n'
        f"  <dependencies>\n{wanted}\n  </dependencies>\n</ivy-module>\n"
    )


def _dependency(one: MavenCoordinate) -> str:
    """Return one jar's line; a classifier is asked for by an artifact of its own."""
    named = (
        f'    <dependency org="{one.group}" name="{one.artifact}" rev="{one.version}" '
        f'conf="default-&gt;default" transitive="{str(one.transitive).lower()}"'
    )
    if not one.classifier:
        return f"{named}/>"
    artifact = f'<artifact name="{one.artifact}" type="jar" m:classifier="{one.classifier}"/>'
    return f"{named}>{artifact}</dependency>"


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
    "Check that this machine reaches Maven Central; behind a mirror, name an Ivy settings file "
    "in PYKAFKA_IVY_SETTINGS, and a proxy in JAVA_TOOL_OPTIONS."
)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that the operating system drops with its holder, however that one ends."""
    end = time.monotonic() + 2 * FETCH_SECONDS
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    msg = f"Another process has held {path} for too long; end it, then try again."
                    raise FetchError(msg) from None
                time.sleep(LOCK_POLL_SECONDS)
        yield
