"""
Admin requests with retries: a deadline, and a new client when the old one gets no response.
"""

from __future__ import annotations

import logging
import os
import time
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as NotDone
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from pyspark_pykafka.engines import first_contact
from pyspark_pykafka.engines.error_mapping import (
    FatalErrors,
    map_kafka_error,
    no_response_error,
    translating_errors,
)
from pyspark_pykafka.engines.librdkafka.bootstrap_check import bootstrap_error
from pyspark_pykafka.errors import (
    AuthorizationError,
    KafkaClientError,
    PykafkaError,
    TimeoutExceededError,
)
from pyspark_pykafka.retry import NEVER, Deadline
from pyspark_pykafka.settings.librdkafka_config import admin_config

K = TypeVar("K")
R = TypeVar("R")

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from pyspark_pykafka.settings import KafkaSettings

    #: The results of one request by subject, such as the names of topics.
    Futures = Mapping[K, Future[R]]

logger = logging.getLogger("pyspark_pykafka")

_SLICE_SECONDS = 0.1
_LONG_WAIT_SECONDS = 5.0

# The minimum request timeout: after a ListOffsets request with a timeout of only a few
# milliseconds, librdkafka 2.16 frees memory twice when the client is closed.
_MIN_REQUEST_SECONDS = 1.0
_GRACE_SECONDS = 5.0

# The first request timeout. librdkafka 2.16 sends many requests to the broker that it believes to
# be the controller; if that broker is lost, the client waits for it and never looks for the new
# controller.
_FIRST_REQUEST_SECONDS = 2.0

_BROKER_DEFAULT = -1

# The clients of abandoned requests, with their process and their futures.
_unfinished: list[tuple[int, AdminClient, Collection[Future[Any]]]] = []

# Only a new client finds the new coordinator or controller: librdkafka 2.16 keeps sending requests
# to the former one, unless five minutes pass between two requests (observed).
_MOVED = frozenset({"NOT_COORDINATOR", "NOT_CONTROLLER"})
_MOVED_PAUSE_SECONDS = 0.5

_MISSING = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "GROUP_ID_NOT_FOUND")


def _raise_error(_subject: object, error: PykafkaError) -> None:
    raise error


class RetryingAdmin:
    """
    An admin client that is created on first use, and replaced when it gets no response.

    ``kafka.default.api.timeout.ms`` limits each call, retries included.
    """

    def __init__(self, kafka: KafkaSettings, now: Callable[[], float] = time.monotonic) -> None:
        self._kafka = kafka
        self._now = now
        self._fatal = FatalErrors()
        self._client: AdminClient | None = None

    def __repr__(self) -> str:
        state = "not connected" if self._client is None else "connected"
        return f"<RetryingAdmin {self._kafka.get('bootstrap.servers')}, {state}>"

    @property
    def timeout_seconds(self) -> float:
        """
        The time limit of the next call, retries included.
        """
        return first_contact.request_seconds(self._kafka)

    def new_deadline(self) -> Deadline:
        """
        Return the deadline of a call that begins now.
        """
        return Deadline.after(self.timeout_seconds, self._now)

    def client(self) -> AdminClient:
        """
        Return the client, which must outlive the futures that it returns.

        Raises :class:`OptionsError` for settings that librdkafka rejects, such as a missing file.
        """
        if self._client is None:
            config = admin_config(self._kafka)
            with translating_errors("connecting"):
                self._client = AdminClient({**config, "error_cb": self._fatal.record})
        return self._client

    def reset(self) -> None:
        """
        Make the next call use a new client, which has no stale metadata.
        """
        self._client = None

    def call(
        self,
        request: Callable[[AdminClient, float], Futures[K, R]],
        action: str,
        deadline: Deadline | None = None,
        on_error: Callable[[K, PykafkaError], None] = _raise_error,
    ) -> dict[K, R]:
        """
        Return the results by subject, without subjects that do not exist.

        ``on_error`` is called with a subject and its error, if no retry can help; by default it
        raises the error.

        ``request`` gets a client and a request timeout in seconds. Until the deadline (by default
        ``timeout_seconds`` from now) it is called again with a new client: with twice the timeout
        if there was no response, with the same timeout if the coordinator or the controller has
        moved. Raises the errors of :mod:`pyspark_pykafka.errors`; ``action`` is for their text.
        """
        deadline = deadline or self.new_deadline()
        log_at = Deadline.after(_LONG_WAIT_SECONDS, self._now)
        request_seconds = _FIRST_REQUEST_SECONDS
        while True:
            seconds = max(deadline.remaining(max_seconds=request_seconds), _MIN_REQUEST_SECONDS)
            try:
                results = self._request(request, seconds, action, on_error)
            except TimeoutExceededError as error:
                self._raise_at_end(error, deadline, action)
                reason = "no response yet"
                request_seconds *= 2
            except _MovedError as moved:
                if deadline.expired:
                    raise moved.error from moved
                reason = "the coordinator or the controller is moving"
                deadline.pause(_MOVED_PAUSE_SECONDS)
            else:
                first_contact.record_contact(self._kafka)
                return results
            if log_at.expired:
                log_at, seconds = NEVER, deadline.remaining()
                logger.warning("%s: %s; retrying for %.0f s at most", action, reason, seconds)

    def _request(
        self,
        request: Callable[[AdminClient, float], Futures[K, R]],
        seconds: float,
        action: str,
        on_error: Callable[[K, PykafkaError], None],
    ) -> dict[K, R]:
        """
        Send the request once; the next request uses a new client if this one is no longer usable.
        """
        futures = request(self.client(), seconds)
        limit = Deadline.after(seconds + _GRACE_SECONDS, self._now)
        try:
            with _kept_until_done(self.client(), futures.values()):
                return self._results(futures, limit, action, on_error)
        except TimeoutExceededError:
            wait(futures.values(), timeout=_GRACE_SECONDS)
            self.reset()
            raise
        except _MovedError:
            self.reset()
            raise

    def _raise_at_end(self, error: TimeoutExceededError, deadline: Deadline, action: str) -> None:
        """
        Raise the reason for the missing response, if another request would be useless or too late.
        """
        reason = bootstrap_error(self._kafka)
        if reason is not None and not reason.retriable:
            raise reason from error
        if deadline.expired:
            if reason is None:
                raise error
            msg = f"{action}: {reason}"
            raise TimeoutExceededError(msg) from error

    def create_topic(
        self,
        name: str,
        config: Mapping[str, str],
        action: str,
        *,
        partitions: int = 1,
        replication_factor: int = _BROKER_DEFAULT,
        validate_only: bool = False,
    ) -> bool:
        """
        Create a topic, and return False if the topic existed already.

        A topic that exists after a request without a response counts as created: that request may
        have created it. With ``validate_only`` nothing is created. Raises
        :class:`AuthorizationError`, and the other errors of :meth:`call`.
        """
        requests: list[Future[None]] = []

        def create(client: AdminClient, seconds: float) -> Futures[str, None]:
            topic = NewTopic(name, partitions, replication_factor, config=dict(config))
            futures: Futures[str, None] = client.create_topics(
                [topic], request_timeout=seconds, validate_only=validate_only
            )
            requests.append(futures[name])
            return futures

        try:
            self.call(create, action)
        except AuthorizationError as error:
            msg = f"{error}: allow Create on the topic {name}"
            raise AuthorizationError(msg) from error
        except KafkaClientError as error:
            if error.name != "TOPIC_ALREADY_EXISTS":
                raise
            return not validate_only and not all(map(_has_moved, requests[:-1]))
        return True

    def delete_topic(self, name: str) -> bool:
        """
        Delete a topic, and return False if it did not exist.

        A topic that is missing after a request without a response counts as deleted: that request
        may have deleted it.
        """
        requests: list[Future[None]] = []

        def delete(client: AdminClient, seconds: float) -> Futures[str, None]:
            futures: Futures[str, None] = client.delete_topics([name], request_timeout=seconds)
            requests.append(futures[name])
            return futures

        if name in self.call(delete, f"deleting the topic {name}"):
            return True
        return not all(map(_has_moved, requests[:-1]))

    def _results(
        self,
        futures: Futures[K, R],
        deadline: Deadline,
        action: str,
        on_error: Callable[[K, PykafkaError], None],
    ) -> dict[K, R]:
        results = {}
        for subject, future in futures.items():
            try:
                results[subject] = self._result(future, deadline, action)
            except KafkaException as error:
                name = error.args[0].name()
                if name in _MOVED:
                    raise _MovedError(map_kafka_error(error.args[0], action)) from error
                if name not in _MISSING:
                    cause = map_kafka_error(error.args[0], action)
                    if cause.retriable:
                        raise cause from error
                    cause.__cause__ = error
                    on_error(subject, cause)
        return results

    def _result(self, future: Future[R], deadline: Deadline, action: str) -> R:
        while True:
            # Authentication errors never reach the future, only the client's error callback.
            self._fatal.raise_pending(action)
            try:
                return future.result(timeout=deadline.remaining(max_seconds=_SLICE_SECONDS))
            except NotDone as error:
                if deadline.expired:
                    msg = f"{action}: {no_response_error(())}"
                    raise TimeoutExceededError(msg) from error
                self.client().poll(0)


def describe_cluster(client: AdminClient, seconds: float) -> dict[str, Future[object]]:
    """
    Request the brokers' metadata without topics: a request for :meth:`RetryingAdmin.call`.
    """
    return {"cluster": client.describe_cluster(request_timeout=seconds)}


class _MovedError(Exception):
    """
    The broker that got the request is no longer the coordinator or the controller.
    """

    def __init__(self, error: PykafkaError) -> None:
        super().__init__(str(error))
        self.error = error


def _has_moved(request: Future[Any]) -> bool:
    """
    Return whether a broker rejected a request because it is not the coordinator or controller.
    """
    error = request.exception() if request.done() else None
    return isinstance(error, KafkaException) and error.args[0].name() in _MOVED


@contextmanager
def _kept_until_done(client: AdminClient, futures: Collection[Future[Any]]) -> Iterator[None]:
    """
    Keep a client whose futures are not done at the end of the block, until a later call finds them
    done.

    librdkafka aborts the process when a client is destroyed in one of its own threads. Futures are
    completed in such a thread, where any Python code may run the garbage collector. That could
    destroy a client to which only the traceback of a discarded error still refers.
    """
    # Invariant R4 (fork safety): the parent's clients stay.
    pid = os.getpid()
    _unfinished[:] = [entry for entry in _unfinished if entry[0] != pid or not _are_done(entry[2])]
    try:
        yield
    finally:
        if not _are_done(futures):
            _unfinished.append((pid, client, futures))


def _are_done(futures: Collection[Future[Any]]) -> bool:
    return all(future.done() for future in futures)
