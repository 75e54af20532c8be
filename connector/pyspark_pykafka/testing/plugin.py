"""
The pytest plugin of the package: a running Kafka and a running ZooKeeper as fixtures.
"""

from __future__ import annotations

import os
import re
import uuid
from typing import TYPE_CHECKING, Protocol

import pytest

# Every pytest run in an environment with the package loads this plugin, so the fixtures themselves
# import what they need.
if TYPE_CHECKING:
    from collections.abc import Iterator

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
def topic(kafka_cluster: AnyCluster, request: pytest.FixtureRequest) -> TopicFactory:
    """
    Create topics with unique names: `topic(partitions=2, cleanup_policy="compact")`.

    Settings are those of the topic, with underscores instead of dots.
    """

    def make(partitions: int = 1, **config: object) -> str:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        return kafka_cluster.create_topic(unique_name(request.node.name), partitions, settings)

    return make


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
