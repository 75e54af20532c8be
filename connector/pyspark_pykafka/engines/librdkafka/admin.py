"""
The driver's questions to the brokers: one admin client, a deadline, and another client when the
first gets no answer.
"""

from __future__ import annotations

import logging
from concurrent.futures import TimeoutError as NotYet
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from pyspark_pykafka.engines.error_mapping import FatalErrors, map_kafka_error
from pyspark_pykafka.errors import KafkaClientError, TimeoutExceededError
from pyspark_pykafka.retry import NEVER, Deadline
from pyspark_pykafka.settings.librdkafka_config import admin_config, api_timeout_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from pyspark_pykafka.settings import KafkaSettings

    Futures = Mapping[Any, Future[Any]]

logger = logging.getLogger("pyspark_pykafka")

_SLICE_SECONDS = 0.1
_LONG_WAIT_SECONDS = 5.0

# What a question may take at least, however late it is: librdkafka 2.16 frees memory twice when a
# client is closed whose question for offsets had no more than some milliseconds.
_LEAST_SECONDS = 1.0
_GRACE_SECONDS = 5.0

# librdkafka 2.16 sends many questions to the broker that it takes for the controller. When that
# one is lost, the client goes on waiting for it, and no other call makes it look for a new one.
_PATIENCE_SECONDS = 2.0

# The brokers' own number of replicas.
_ANY = -1

_MISSING = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "GROUP_ID_NOT_FOUND")


class RetryingAdmin:
    """
    Makes its client when it is first asked for; ``timeout_seconds`` is what a question may take.
    """

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._fatal = FatalErrors()
        self._client: AdminClient | None = None
        self.timeout_seconds = api_timeout_ms(kafka) / 1000

    def client(self) -> AdminClient:
        """
        Return the client; it must outlive the futures that it gives.
        """
        if self._client is None:
            config = admin_config(self._kafka)
            self._client = AdminClient({**config, "error_cb": self._fatal.record})
        return self._client

    def reset(self) -> None:
        """
        Let the next question go to another client, which knows nothing old of the cluster.
        """
        self._client = None

    def call(
        self,
        question: Callable[[AdminClient, float], Futures],
        doing: str,
        deadline: Deadline | None = None,
    ) -> dict[Any, Any]:
        """
        Return the results by subject, leaving out what does not exist.

        ``question`` gets a client and a request timeout in seconds. It is called again, each time
        with a new client and twice the timeout, until the deadline (by default
        ``timeout_seconds`` from now). Raises the errors of :mod:`pyspark_pykafka.errors`;
        ``doing`` is for their text.
        """
        deadline = deadline or Deadline.after(self.timeout_seconds)
        tell_at = Deadline.after(_LONG_WAIT_SECONDS)
        patience = _PATIENCE_SECONDS
        while True:
            seconds = max(deadline.remaining(max_seconds=patience), _LEAST_SECONDS)
            futures = question(self.client(), seconds)
            try:
                return self._answers(futures, Deadline.after(seconds + _GRACE_SECONDS), doing)
            except TimeoutExceededError:
                wait(futures.values(), timeout=_GRACE_SECONDS)
                self.reset()
                if deadline.expired:
                    raise
            if tell_at.expired:
                tell_at, seconds = NEVER, deadline.remaining()
                logger.warning("%s: no answer yet; asking for %.0f s more", doing, seconds)
            patience *= 2

    def create_topic(
        self,
        name: str,
        config: Mapping[str, str],
        doing: str,
        *,
        replication_factor: int = _ANY,
        validate_only: bool = False,
    ) -> bool:
        """
        Return once there is a topic of this name; a new one has one partition and this config.

        False if there was one. With ``validate_only`` nothing is made. Raises
        :class:`AuthorizationError`, and the other errors of :meth:`call`.
        """

        def make(client: AdminClient, seconds: float) -> Futures:
            topic = NewTopic(name, 1, replication_factor, config=dict(config))
            made: Futures = client.create_topics(
                [topic], request_timeout=seconds, validate_only=validate_only
            )
            return made

        try:
            self.call(make, doing)
        except KafkaClientError as error:
            # Somebody else was faster.
            if error.name != "TOPIC_ALREADY_EXISTS":
                raise
            return False
        return True

    def _answers(self, futures: Futures, deadline: Deadline, doing: str) -> dict[Any, Any]:
        answers = {}
        for subject, future in futures.items():
            try:
                answers[subject] = self._result(future, deadline, doing)
            except KafkaException as error:
                if error.args[0].name() not in _MISSING:
                    raise map_kafka_error(error.args[0], doing) from error
        return answers

    def _result(self, future: Future[Any], deadline: Deadline, doing: str) -> Any:
        while True:
            # Authentication errors never reach the future, only the client's error callback.
            self._fatal.raise_pending(doing)
            try:
                return future.result(timeout=deadline.remaining(max_seconds=_SLICE_SECONDS))
            except NotYet as error:
                if deadline.expired:
                    msg = f"{doing}: no broker answered in time"
                    raise TimeoutExceededError(msg) from error
                self.client().poll(0)
