"""
A test broker in Docker, through testcontainers (PYKAFKA_BROKER=docker).
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .external import ExternalCluster
from .ports import free_ports
from .processes import ServerError
from .properties import Node, Setting, server_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

START_SECONDS = 120.0
CONTROLLER_PORT = 29093
LOG_TAIL = 4000
LOOPBACK = "127.0.0.1"


class DockerCluster(ExternalCluster):
    """
    One broker in a container of Apache Kafka's image; it can be stopped but not killed.

    Its port is published on the loopback address only.
    """

    keeps_topics = False

    def __init__(
        self, brokers: int, version: str, config: Mapping[str, Setting] | None = None
    ) -> None:
        if brokers != 1:
            msg = f"brokers is {brokers}; in Docker it must be 1. Unset PYKAFKA_BROKER for more."
            raise ValueError(msg)
        self._node = Node(1, free_ports(1)[0], CONTROLLER_PORT)
        super().__init__(self._node.address)
        self._image = f"apache/kafka:{version}"
        self._config = dict(config or {})
        self._container: Any = None

    def start(self) -> DockerCluster:
        """
        Start the container and return once the broker is ready.
        """
        container = _new_container(self._image)
        # Without an address Docker publishes a port on all interfaces of this machine.
        container.with_bind_ports(self._node.port, (LOOPBACK, self._node.port))
        for name, value in container_environment(self._node, self._config).items():
            container.with_env(name, value)
        self._container = container
        try:
            with _docker_errors(f"starting a container of {self._image}"):
                container.start()
            self._wait_ready(START_SECONDS)
        except BaseException as error:
            tail = _log_tail(container) if isinstance(error, ServerError) else ""
            with contextlib.suppress(ServerError):
                self.stop()
            if not tail:
                raise
            msg = f"{error} The end of the container's log:\n{tail}"
            raise ServerError(msg) from error
        return self

    def stop(self, node: int | None = None) -> None:
        """
        Stop the container and remove its data.
        """
        if node is not None:
            self._refuse("stop", node)
        container, self._container = self._container, None
        if container is not None:
            with _docker_errors(f"removing a container of {self._image}"):
                container.stop()


def container_environment(node: Node, config: Mapping[str, Setting]) -> dict[str, str]:
    """
    Return a broker's settings as the environment variables of Apache Kafka's image.
    """
    listeners = {
        # The host reaches a published port only if the broker listens on all addresses.
        "listeners": f"CLIENT://0.0.0.0:{node.port},CONTROLLER://127.0.0.1:{node.controller_port}",
    }
    data = Path("/var/lib/kafka/data")
    settings = server_settings(node, (node,), data, {**listeners, **config})
    return {_variable(name): value for name, value in settings.items()}


def _variable(name: str) -> str:
    escaped = name.replace("_", "__").replace("-", "___").replace(".", "_")
    return f"KAFKA_{escaped.upper()}"


def _new_container(image: str) -> Any:
    if importlib.util.find_spec("testcontainers") is None:
        msg = (
            "PYKAFKA_BROKER is 'docker', which needs the package testcontainers; install it with: "
            "pip install 'pyspark-pykafka[docker]'"
        )
        raise ServerError(msg)
    core = importlib.import_module("testcontainers.core.container")
    with _docker_errors("connecting"):
        return core.DockerContainer(image)


def _log_tail(container: Any) -> str:
    """
    Return the end of a container's log; nothing if it has none.
    """
    try:
        with _docker_errors("reading the log"):
            out, err = container.get_logs()
    except ServerError:
        return ""
    return str((out + err)[-LOG_TAIL:].decode(errors="replace"))


@contextlib.contextmanager
def _docker_errors(action: str) -> Iterator[None]:
    """
    Turn the errors of Docker, of its client and of testcontainers into :class:`ServerError`.
    """
    docker = importlib.import_module("docker.errors")
    try:
        yield
    # testcontainers raises RuntimeError, and Docker's HTTP client raises OSError.
    except (docker.DockerException, OSError, RuntimeError) as error:
        if isinstance(error, ServerError):
            raise
        msg = (
            f"PYKAFKA_BROKER is 'docker', but {action} failed ({error}). Is a Docker engine "
            "running, and may you use it? Unset PYKAFKA_BROKER to test with a broker started from "
            "Kafka's jars."
        )
        raise ServerError(msg) from error
