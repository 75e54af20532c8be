"""
The pytest plugin of the package: a running Kafka and a running ZooKeeper as fixtures.
"""

from __future__ import annotations

import os
import re
import uuid
import warnings
from typing import TYPE_CHECKING, Protocol

import pytest

# Every pytest run in an environment with the package loads this plugin, so the fixtures themselves
# import what they need.
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .client import KafkaAccess
    from .select_cluster import AnyCluster
    from .zookeeper import ZooKeeper

MAX_NAME_LENGTH = 120


class TopicFactory(Protocol):
    """
    The type of the `topic` fixture: a function that creates a topic and returns its name.
    """

    def __call__(self, partitions: int = 1, **config: object) -> str:
        """
        Create a topic; write its settings with underscores instead of dots.
        """


def pytest_addoption(parser: pytest.Parser) -> None:
    """
    Add the option --require-broker.
    """
    parser.getgroup("pykafka").addoption(
        "--require-broker",
        action="store_true",
        help="fail tests, instead of skipping them, if Kafka or ZooKeeper cannot be started; "
        "the environment variable CI has the same effect",
    )


@pytest.fixture(scope="session")
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[AnyCluster]:
    """
    One Kafka broker for the test session, chosen by PYKAFKA_BOOTSTRAP or PYKAFKA_BROKER.
    """
    from .jars import FetchError
    from .java import JavaNotFoundError
    from .processes import ServerError
    from .select_cluster import choose_cluster

    try:
        kafka = choose_cluster().start()
    except (ServerError, FetchError, JavaNotFoundError) as error:
        _skip_or_fail(request.config, error)
    try:
        yield kafka
    finally:
        kafka.stop()


@pytest.fixture(scope="session")
def zookeeper(request: pytest.FixtureRequest) -> Iterator[ZooKeeper]:
    """
    One ZooKeeper for the test session.
    """
    from .jars import FetchError
    from .java import JavaNotFoundError
    from .processes import ServerError
    from .zookeeper import ZooKeeper

    try:
        server = ZooKeeper().start()
    except (ServerError, FetchError, JavaNotFoundError) as error:
        _skip_or_fail(request.config, error)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def topic(kafka_cluster: AnyCluster, request: pytest.FixtureRequest) -> Iterator[TopicFactory]:
    """
    Create topics with unique names: `topic(partitions=2, cleanup_policy="compact")`.

    Settings are those of the topic, with underscores instead of dots. After the test the topics are
    deleted if the cluster outlives the tests.
    """
    topics = CreatedTopics(kafka_cluster, request.node.name)
    yield topics
    topics.delete()


class CreatedTopics:
    """
    Creates the topics of one test; a :class:`TopicFactory`.
    """

    def __init__(self, cluster: KafkaAccess, test: str) -> None:
        self._cluster = cluster
        self._test = test
        self._names: list[str] = []

    def __call__(self, partitions: int = 1, **config: object) -> str:
        """
        Create a topic and return its name.
        """
        settings = {name.replace("_", "."): value for name, value in config.items()}
        name = unique_name(self._test)
        # Recorded before the request: a topic can exist although its creation has failed.
        self._names.append(name)
        return self._cluster.create_topic(name, partitions, settings)

    def delete(self) -> None:
        """
        Delete the topics from a cluster that outlives the tests; warn of those that remain.
        """
        names, self._names = self._names, []
        for name in names if self._cluster.keeps_topics else []:
            try:
                self._cluster.delete_topic(name)
            except Exception as error:  # noqa: BLE001 (the test's own result holds)
                text = (
                    f"the topic {name} could not be deleted from {self._cluster.bootstrap}: "
                    f"{error}; delete it with: pykafka topic delete "
                    f"--bootstrap-server {self._cluster.bootstrap} {name} --execute"
                )
                warnings.warn(text, stacklevel=2)


def unique_name(test: str) -> str:
    """
    Return a unique topic name that begins with the test's name.
    """
    prefix = re.sub(r"[^A-Za-z0-9-]+", "-", test).strip("-")[:MAX_NAME_LENGTH]
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def _skip_or_fail(config: pytest.Config, error: Exception) -> None:
    if config.getoption("--require-broker") or os.environ.get("CI"):
        raise error
    pytest.skip(f"no server to test with (an error with --require-broker): {error}")
