"""Lets tests run against a Kafka that somebody else started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from . import readiness
from .client import KafkaAccess
from .processes import ServerError
from .waiting import NotReadyError, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from typing_extensions import Self

ANSWER_SECONDS = 20.0


class ExternalCluster(KafkaAccess):
    """
    A cluster that runs already, at 'host:port,host:port'.

    Topics can be made, written and read; its nodes are not ours to kill or pause.
    """

    def __init__(self, bootstrap: str, client_config: Mapping[str, Any] | None = None) -> None:
        self._bootstrap = bootstrap
        self.client_config = dict(client_config or {})

    @property
    def bootstrap(self) -> str:
        """The address that was given."""
        return self._bootstrap

    def start(self) -> ExternalCluster:
        """Return once the cluster answers; an error says that it doesn't."""
        self._wait_for_answer(ANSWER_SECONDS)
        return self

    def stop(self, node: int | None = None) -> None:
        """Leave the cluster as it is; a single node can't be stopped."""
        if node is not None:
            self._refuse("stop", node)

    def kill(self, node: int | None = None) -> NoReturn:
        """Refuse."""
        self._refuse("kill", node)

    def restart(self, node: int | None = None) -> NoReturn:
        """Refuse."""
        self._refuse("restart", node)

    def pause(self, node: int | None = None) -> NoReturn:
        """Refuse."""
        self._refuse("pause", node)

    def resume(self, node: int | None = None) -> NoReturn:
        """Refuse."""
        self._refuse("resume", node)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _wait_for_answer(self, seconds: float) -> None:
        try:
            wait_until(lambda: readiness.missing_brokers(self.admin, set()), seconds)
        except NotReadyError as error:
            msg = f"Kafka at {self.bootstrap} is not ready. {error}"
            raise ServerError(msg) from error

    def _refuse(self, verb: str, node: int | None = None) -> NoReturn:
        whom = "it" if node is None else f"node {node} of it"
        msg = (
            f"Kafka at {self.bootstrap} was not started from here, so no test may {verb} {whom}; "
            "unset PYKAFKA_BOOTSTRAP and PYKAFKA_BROKER to test with a KafkaCluster."
        )
        raise ServerError(msg)
