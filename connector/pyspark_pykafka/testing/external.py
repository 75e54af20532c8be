"""
A Kafka cluster that the tests did not start (PYKAFKA_BOOTSTRAP).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from . import readiness
from .client import KafkaAccess
from .lifecycle import Startable
from .processes import ServerError
from .waiting import NotReadyError, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

READY_SECONDS = 20.0


class ExternalCluster(Startable, KafkaAccess):
    """
    A running cluster at 'host:port,host:port'.

    Tests can create, write and read topics, but not stop, kill, restart or pause nodes.
    """

    keeps_topics = True

    def __init__(self, bootstrap: str, client_config: Mapping[str, Any] | None = None) -> None:
        self._bootstrap = bootstrap
        self.client_config = dict(client_config or {})

    @property
    def bootstrap(self) -> str:
        """
        The brokers' addresses, as passed to the constructor.
        """
        return self._bootstrap

    def start(self) -> ExternalCluster:
        """
        Return once the cluster is ready; raise `ServerError` if it is not.
        """
        self._wait_ready(READY_SECONDS)
        return self

    def stop(self, node: int | None = None) -> None:
        """
        Leave the cluster running; raise `ServerError` for a single node.
        """
        if node is not None:
            self._refuse("stop", node)

    def kill(self, node: int | None = None) -> NoReturn:
        """
        Raise `ServerError`: nodes of an external cluster cannot be killed.
        """
        self._refuse("kill", node)

    def restart(self, node: int | None = None) -> NoReturn:
        """
        Raise `ServerError`: nodes of an external cluster cannot be restarted.
        """
        self._refuse("restart", node)

    def pause(self, node: int | None = None) -> NoReturn:
        """
        Raise `ServerError`: nodes of an external cluster cannot be paused.
        """
        self._refuse("pause", node)

    def resume(self, node: int | None = None) -> NoReturn:
        """
        Raise `ServerError`: nodes of an external cluster cannot be resumed.
        """
        self._refuse("resume", node)

    def _wait_ready(self, seconds: float) -> None:
        try:
            wait_until(lambda: readiness.missing_brokers(self.admin, set()), seconds)
        except NotReadyError as error:
            msg = f"Kafka at {self.bootstrap} is not ready. {error}"
            raise ServerError(msg) from error

    def _refuse(self, verb: str, node: int | None = None) -> NoReturn:
        target = "it" if node is None else f"its node {node}"
        msg = (
            f"Kafka at {self.bootstrap} is external, so tests cannot {verb} {target}; "
            "unset PYKAFKA_BOOTSTRAP and PYKAFKA_BROKER to test with a KafkaCluster."
        )
        raise ServerError(msg)
