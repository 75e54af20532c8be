"""Gives pytest suites a running Kafka and ZooKeeper as fixtures; installed with the package."""

from __future__ import annotations

import os
import re
import uuid
from typing import TYPE_CHECKING, Protocol

import pytest

# Whoever has the package installed loads this plugin with every pytest run, so what the fixtures
# need is imported by the fixtures.
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .select_cluster import AnyCluster
    from .zookeeper import ZooKeeper

LONGEST_NAME = 120


class NewTopicName(Protocol):
    """What the `topic` fixture gives: a function that makes a new topic and returns its name."""

    def __call__(self, partitions: int = 1, **config: object) -> str:
        """Make a topic; its settings are written with underscores for dots."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --require-broker."""
    parser.getgroup("pykafka").addoption(
        "--require-broker",
        action="store_true",
        help="fail, rather than skip, tests whose Kafka or ZooKeeper can't be started; "
        "CI in the environment means the same",
    )


@pytest.fixture(scope="session")
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[AnyCluster]:
    """One Kafka broker for the whole test run; PYKAFKA_BOOTSTRAP or PYKAFKA_BROKER choose which."""
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
    """One ZooKeeper for the whole test run."""
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
def topic(kafka_cluster: AnyCluster, request: pytest.FixtureRequest) -> NewTopicName:
    """
    Make topics with names that no other test has: `topic(partitions=2, cleanup_policy="compact")`.

    Settings are the topic's, with underscores for dots.
    """

    def make(partitions: int = 1, **config: object) -> str:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        return kafka_cluster.create_topic(unique_name(request.node.name), partitions, settings)

    return make


def unique_name(test: str) -> str:
    """Return a topic name that shows whose it is."""
    readable = re.sub(r"[^A-Za-z0-9-]+", "-", test).strip("-")[:LONGEST_NAME]
    return f"{readable}-{uuid.uuid4().hex[:8]}"


def _skip_or_fail(config: pytest.Config, error: Exception) -> None:
    if config.getoption("--require-broker") or os.environ.get("CI"):
        raise error
    pytest.skip(f"no server to test with (an error under --require-broker): {error}")
