"""
Clusters that the tests did not start from Kafka's jars: an external one, and one in Docker.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.served_kafka import SimulatedAccess

from pyspark_pykafka.testing import ServerError, docker
from pyspark_pykafka.testing.docker import DockerCluster
from pyspark_pykafka.testing.plugin import CreatedTopics
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def cluster() -> Iterator[SimulatedAccess]:
    """
    A cluster that stands in for one that the tests did not start.
    """
    with SimulatedAccess() as served:
        yield served


def names(cluster: SimulatedAccess) -> set[str]:
    return set(cluster.admin().list_topics(timeout=10).topics)


def wait_until_deleted(cluster: SimulatedAccess, topics: set[str]) -> None:
    """
    Wait until no broker that is asked knows the topics: brokers learn of a deletion one by one.
    """

    def remaining() -> str | None:
        known = topics & names(cluster)
        return f"{sorted(known)} still exist" if known else None

    wait_until(remaining, 30)


@pytest.mark.parametrize("keeps_topics", [True, False])
def test_topics_of_a_test_are_deleted_from_an_external_cluster(
    cluster: SimulatedAccess, monkeypatch: pytest.MonkeyPatch, *, keeps_topics: bool
) -> None:
    """
    After the test its topics are deleted from a cluster that outlives it, and no others; a topic
    that the test has deleted itself is no problem.
    """
    monkeypatch.setattr(cluster, "keeps_topics", keeps_topics)
    other = cluster.create_topic(f"other-{keeps_topics}")
    topics = CreatedTopics(cluster, "test_it")
    created = {topics(), topics(partitions=2)}
    cluster.delete_topic(topics())

    topics.delete()

    if keeps_topics:
        wait_until_deleted(cluster, created)
    else:
        assert created <= names(cluster)
    assert other in names(cluster)


def test_a_topic_that_cannot_be_deleted_is_named_in_a_warning(
    cluster: SimulatedAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The teardown does not fail, and tells how to delete the topic; the other topics are deleted.
    """
    monkeypatch.setattr(cluster, "keeps_topics", True)
    topics = CreatedTopics(cluster, "test_it")
    kept, deleted = topics(), topics()
    delete = cluster.delete_topic

    def refuse(name: str) -> None:
        if name == kept:
            msg = "denied"
            raise RuntimeError(msg)
        delete(name)

    monkeypatch.setattr(cluster, "delete_topic", refuse)
    command = rf"pykafka topic delete --bootstrap-server {cluster.bootstrap} {kept} --execute"

    with pytest.warns(UserWarning, match=command):
        topics.delete()

    wait_until_deleted(cluster, {deleted})
    assert kept in names(cluster)


class DockerError(Exception):
    """
    Stands in for ``docker.errors.DockerException``.
    """


class Container:
    """
    Stands in for a container of testcontainers; ``error`` is raised when it starts.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.bound: dict[int, Any] = {}
        self.stopped = 0

    def with_bind_ports(self, container: int, host: Any) -> None:
        self.bound[container] = host

    def with_env(self, name: str, value: str) -> None:
        pass

    def start(self) -> None:
        raise self.error

    def get_logs(self) -> tuple[bytes, bytes]:
        raise self.error

    def stop(self) -> None:
        self.stopped += 1
        raise self.error


@pytest.mark.parametrize(
    "error", [DockerError("no such image"), OSError("no socket"), RuntimeError("not started")]
)
def test_errors_of_docker_are_named(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """
    An error of Docker is a ServerError with advice, so that tests are skipped; the container, whose
    port is published on the loopback address only, is removed.
    """
    module = ModuleType("docker.errors")
    module.__dict__["DockerException"] = DockerError
    monkeypatch.setitem(sys.modules, "docker.errors", module)
    monkeypatch.setitem(sys.modules, "docker", ModuleType("docker"))
    container = Container(error)
    monkeypatch.setattr(docker, "_new_container", lambda _: container)
    cluster = DockerCluster(1, "4.3.1")

    with pytest.raises(ServerError, match=rf"starting a container of .* failed \({error}\)"):
        cluster.start()

    (published,) = container.bound.values()
    assert published == ("127.0.0.1", int(cluster.bootstrap.rpartition(":")[2]))
    assert container.stopped == 1


def test_a_docker_engine_that_cannot_be_reached_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Without an engine the error names PYKAFKA_BROKER and the alternative.
    """
    module = ModuleType("docker.errors")
    module.__dict__["DockerException"] = DockerError

    def fail(_: str) -> None:
        msg = "connection refused"
        raise DockerError(msg)

    core = ModuleType("testcontainers.core.container")
    core.__dict__["DockerContainer"] = fail
    monkeypatch.setitem(sys.modules, "docker.errors", module)
    monkeypatch.setitem(sys.modules, core.__name__, core)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: SimpleNamespace())

    with pytest.raises(ServerError, match=r"PYKAFKA_BROKER is 'docker'.*connection refused"):
        DockerCluster(1, "4.3.1").start()
