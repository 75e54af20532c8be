"""
A Spark standalone cluster of two workers, whose nodes have Spark but not the connector.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from prometheus_client.parser import text_string_to_metric_families
from tests.support.built_wheel import build_wheel, copy_sources
from tests.support.page_blocks import blocks_of
from tests.support.standalone_cluster import standalone_cluster

import pyspark_pykafka
from pyspark_pykafka.testing import KafkaCluster, Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tests.support.standalone_cluster import StandaloneCluster

    from pyspark_pykafka.testing.plugin import TopicFactory
    from pyspark_pykafka.testing.properties import Node, Setting

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/deploying.md").read_text()
JOB = Path(__file__).with_name("deployed_job.py")
PACKAGE = Path(pyspark_pykafka.__file__).parent
#: The packages that Spark itself needs on each node for Python data sources.
SPARK_NEEDS = ("pyspark", "py4j", "pyarrow", "pandas", "numpy", "python-dateutil", "pytz", "tzdata")
#: The packages that docs/deploying.md packs with the connector.
PACKED = ("confluent-kafka", "kafka-python", "crc32c", "cramjam", "kazoo", "javaproperties")
RECORDS = 900
PARTITIONS = 4
PER_BATCH = 400


@dataclass(frozen=True, slots=True)
class Deployment:
    """
    One way to bring the connector to a cluster: options of spark-submit, and the environment.
    """

    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    guarantee: str = "exactly-once"
    registers: bool = False


class Nodes:
    """
    The files of the nodes and of the driver's machine: Pythons and packages in a folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def python(self, name: str, distributions: Iterable[str]) -> str:
        """
        Return a Python with some distributions of the tests' own Python.
        """
        home = self.folder / name
        command = [sys.executable, "-m", "venv", "--without-pip", str(home)]
        subprocess.run(command, check=True, capture_output=True)
        (packages,) = home.glob("lib/python*/site-packages")
        for path in _installed(distributions):
            (packages / path.name).symlink_to(path)
        return str(home / "bin" / "python")

    def bare(self) -> str:
        """
        Return the Python of a node: Spark can use it, but the connector is not installed.
        """
        return self.python("bare", SPARK_NEEDS)

    def with_dependencies(self) -> str:
        """
        Return a Python that lacks only the connector.
        """
        return self.python("dependencies", (*SPARK_NEEDS, *PACKED))

    def packages(self) -> Path:
        """
        Return a folder like that of ``pip install --target``.
        """
        folder = self.folder / "packages"
        folder.mkdir()
        for path in (PACKAGE, *_installed(PACKED)):
            (shutil.copytree if path.is_dir() else shutil.copy)(path, folder / path.name)
        return folder

    def archive(self, file: str) -> str:
        """
        Return a ZIP file of the package alone, with any extension.
        """
        archive = shutil.make_archive(
            str(self.folder / "package"), "zip", PACKAGE.parent, PACKAGE.name
        )
        return str(shutil.move(archive, self.folder / file))


def _installed(distributions: Iterable[str]) -> Iterator[Path]:
    for name in distributions:
        installed = distribution(name)
        names = {path.parts[0] for path in installed.files or ()} - {"..", "__pycache__"}
        yield from (Path(str(installed.locate_file(name))) for name in sorted(names))


def installed_everywhere(nodes: Nodes) -> Deployment:
    """
    ``pip install pyspark-pykafka`` on each node.
    """
    packages = nodes.packages()
    python = nodes.python("installed", (*SPARK_NEEDS, "prometheus-client"))
    (folder,) = (nodes.folder / "installed").glob("lib/python*/site-packages")
    for path in packages.iterdir():
        shutil.move(path, folder / path.name)
    return Deployment(environment={"PYSPARK_PYTHON": python})


def packed_folder(nodes: Nodes) -> Deployment:
    """
    An archive of ``pip install --target``, unpacked by Spark on each executor.
    """
    packages = nodes.packages()
    archive = shutil.make_archive(str(nodes.folder / "packages"), "gztar", packages)
    return Deployment(
        options=(
            *("--archives", f"{archive}#packages"),
            *("--conf", "spark.executorEnv.PYTHONPATH=packages"),
        ),
        environment={"PYSPARK_PYTHON": nodes.bare(), "PYTHONPATH": str(packages)},
    )


def zip_file(nodes: Nodes) -> Deployment:
    """
    ``--py-files`` with a ZIP file of the package; its dependencies are installed on the nodes.
    """
    return Deployment(
        options=("--py-files", nodes.archive("pyspark_pykafka.zip")),
        environment={"PYSPARK_PYTHON": nodes.with_dependencies()},
        guarantee="at-least-once",
        registers=True,
    )


def wheel(nodes: Nodes) -> Deployment:
    """
    ``--py-files`` with the wheel that pip builds without a compiler; its dependencies are installed
    on the nodes.
    """
    assert "CC=false pip wheel --no-deps" in PAGE
    sources = copy_sources(nodes.folder / "sources")
    file, _ = build_wheel(sources, nodes.folder / "wheels", {"CC": "false"})
    assert f"--py-files {file.name} job.py" in PAGE
    return Deployment(
        options=("--py-files", str(file)),
        environment={"PYSPARK_PYTHON": nodes.with_dependencies()},
        guarantee="at-least-once",
        registers=True,
    )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """
    Return a cluster of two workers with one core each.
    """
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), workers=2) as running:
        yield running


def run(
    cluster: StandaloneCluster,
    kafka: KafkaCluster,
    deployment: Deployment,
    topics: tuple[str, str],
    folder: Path,
) -> dict[str, Any]:
    """
    Run the job and return its result.
    """
    process = cluster.submit(
        JOB,
        [
            *(kafka.bootstrap, *topics, deployment.guarantee, str(folder / "checkpoint")),
            _registration() if deployment.registers else "",
        ],
        deployment.options,
        deployment.environment,
        folder,
    )
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-2000:]
    result: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return result


def _registration() -> str:
    """
    Return the block of the page that registers the format.
    """
    (block,) = (block for block in blocks_of("docs/deploying.md") if "register(" in block.text)
    return block.text


def filled(kafka: KafkaCluster, topic: TopicFactory) -> tuple[str, str]:
    """
    Return a topic with records in each of its partitions, and an empty one.
    """
    source, target = topic(partitions=3), topic(partitions=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(RECORDS):
        producer.produce(source, str(number).encode(), partition=number % 3)
    assert producer.flush(60) == 0
    return source, target


@pytest.mark.soak
@pytest.mark.parametrize("make", [installed_everywhere, packed_folder, wheel, zip_file])
def test_a_job_runs_on_a_cluster(
    cluster: StandaloneCluster,
    kafka_cluster: KafkaCluster,
    topic: TopicFactory,
    tmp_path: Path,
    make: Any,
) -> None:
    """
    Each way of docs/deploying.md reads a batch and copies a topic through executors on two workers.
    """
    topics = filled(kafka_cluster, topic)
    deployment = make(Nodes(tmp_path))

    result = run(cluster, kafka_cluster, deployment, topics, tmp_path)

    committed = kafka_cluster.consume(topics[1], {"isolation.level": "read_committed"})
    assert result["count"] == RECORDS
    assert sorted(int(record.value or b"") for record in committed) == list(range(RECORDS))
    paths, compiled, has_own_copy = zip(*result["imports"], strict=True)
    assert not any(Path(path).is_relative_to(ROOT) for path in paths)
    assert set(compiled) == {not deployment.registers}
    # Workers on other machines do not have the driver's file.
    assert set(has_own_copy) == {True} or not deployment.registers


class ZonedCluster(KafkaCluster):
    """
    Three brokers, each in a zone of its own. The leader names the replica in the client's zone
    (KIP-392).
    """

    def node_config(self, node: Node) -> Mapping[str, Setting]:
        selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
        return {"broker.rack": f"zone-{node.id}", "replica.selector.class": selector}


@pytest.fixture(scope="module")
def zoned() -> Iterator[ZonedCluster]:
    """
    Return brokers in the zones of the two workers, and the leader of all partitions in a third one.
    """
    with ZonedCluster(brokers=3) as kafka:
        new = NewTopic("zoned", PARTITIONS, replica_assignment=[[3, 1, 2]] * PARTITIONS)
        admin = kafka.admin()
        admin.create_topics([new])["zoned"].result(60)
        value = b"x" * 1000
        records = [Record(value, partition=n % PARTITIONS) for n in range(RECORDS)]
        kafka.produce("zoned", records)
        yield kafka


def fetched_bytes(worker: Path, kafka: KafkaCluster) -> dict[int, int]:
    """
    Return the bytes that the executors of a worker have fetched from each broker.
    """
    nodes = {str(node.port): node.id for node in kafka.nodes}
    received: dict[int, int] = {}
    for log in worker.glob("app-*/*/stderr"):
        for port, size in re.findall(r":(\d+): received Fetch .* (\d+) bytes", log.read_text()):
            node = nodes[port]
            received[node] = received.get(node, 0) + int(size)
    return received


@pytest.mark.soak
def test_racks_and_metrics_on_a_cluster(
    cluster: StandaloneCluster, zoned: ZonedCluster, tmp_path: Path
) -> None:
    """
    Each worker fetches from the broker in its own zone, which the leader has named; the driver
    exports the metrics of the query whose tasks run on the workers, on the page for Prometheus and
    in the log.
    """
    deployment = installed_everywhere(Nodes(tmp_path))
    read = {"kafka.bootstrap.servers": zoned.bootstrap, "subscribe": "zoned"}
    batch = {**read, "clientRackEnv": "NODE_ZONE", "kafka.debug": "protocol"}
    stream = {**read, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(PER_BATCH)}
    confs = {
        "spark.executorEnv.PYKAFKA_LOG": "debug",
        # Spark waits for both workers, so that both get tasks.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    }
    options = [word for name, value in confs.items() for word in ("--conf", f"{name}={value}")]

    job = JOB.with_name("cluster_job.py")
    arguments = [json.dumps(batch), json.dumps(stream), str(tmp_path)]
    process = cluster.submit(job, arguments, options, deployment.environment, tmp_path)

    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-2000:]
    result = json.loads(process.stdout.splitlines()[-1])
    assert result["count"] == RECORDS
    for number, folder in enumerate(cluster.worker_folders, 1):
        fetched = fetched_bytes(folder, zoned)
        assert fetched.keys() == {number, 3}, fetched
        assert fetched.pop(number) > 100 * fetched[3]
    check_metrics(result["pages"][0])
    assert [line for line in result["lines"] if line.startswith("query counted: micro-batch 0 ")]


def check_metrics(page: str) -> None:
    """
    The page has the metrics of the first micro-batch, while the second one runs.
    """
    totals: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.labels.get("query_name") == "counted":
                totals[sample.name] = totals.get(sample.name, 0) + sample.value
    assert totals["pykafka_query_running"] == 1
    assert totals["pykafka_read_offsets_total"] == PER_BATCH
    assert totals["pykafka_lag_offsets"] == RECORDS - PER_BATCH
    assert totals["pykafka_end_offset"] == RECORDS
    assert totals["pykafka_batches_total"] == 1


def test_what_is_packed_is_what_the_connector_needs() -> None:
    """
    The page packs every dependency except those that Spark itself needs on a node.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[<>=,]", dependency)[0] for dependency in project["dependencies"]}
    assert needed - set(SPARK_NEEDS) == set(PACKED)
    assert f"--no-deps pyspark-pykafka {' '.join(PACKED)}" in PAGE
