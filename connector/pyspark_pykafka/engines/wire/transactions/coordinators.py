"""
Requests to transaction coordinators, with lookup, caching and retries.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from pyspark_pykafka.engines.wire.network.coordinator_lookup import (
    MAX_KEYS_PER_REQUEST,
    CoordinatorLookup,
    has_moved,
)
from pyspark_pykafka.engines.wire.network.max_block import retry_within_max_block
from pyspark_pykafka.engines.wire.network.pipeline import repeat_none, request_pipelined
from pyspark_pykafka.engines.wire.protocol.find_coordinator import TRANSACTION
from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.retry import Backoff, Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.engines.wire.network.pipeline import RequestFactory
    from pyspark_pykafka.settings.wire_config import Address, ProducerConfig

T = TypeVar("T")

logger = logging.getLogger("pyspark_pykafka")

# A coordinator returns CONCURRENT_TRANSACTIONS while it ends the previous transaction, which takes
# a few milliseconds.
_INITIAL_BACKOFF_SECONDS = 0.01

# The last request before a deadline gets at least this long, or it could never be answered.
_MIN_REQUEST_SECONDS = 1.0


@dataclass(slots=True)
class Coordinators:
    """
    Sends requests to the coordinators of transactional ids, and caches their addresses.

    ``to_error`` returns the error for one of Kafka's error codes, the action that failed and the
    transactional id. Each call takes at most ``config.block_seconds``, and raises the errors of
    :mod:`pyspark_pykafka.errors`.
    """

    cluster: Cluster
    config: ProducerConfig
    to_error: Callable[[int, str, str], PykafkaError]
    addresses: dict[str, Address] = field(default_factory=dict)
    _lookup: CoordinatorLookup = field(init=False)

    def __post_init__(self) -> None:
        self._lookup = CoordinatorLookup(self.cluster, TRANSACTION, self.to_error, self.addresses)

    def send(
        self,
        transactional_id: str,
        request: RequestFactory[T],
        error_code: Callable[[T], int],
        action: str,
    ) -> T:
        """
        Return the coordinator's response, retrying until it succeeds or the error is fatal.
        """

        def once(deadline: Deadline) -> T:
            address = self._lookup.find(transactional_id, deadline)
            try:
                connection = self.cluster.connection_at(address, deadline)
                response = self.cluster.request(connection, request(connection), deadline)
            except PykafkaError:
                self._lookup.invalidate(address)
                raise
            code = error_code(response)
            self.invalidate_if_moved(transactional_id, code)
            if code:
                raise self.to_error(code, action, transactional_id)
            return response

        return self.retry(once, action)

    def send_all(
        self,
        requests: Mapping[str, RequestFactory[T]],
        error_code: Callable[[T], int],
        action: str,
    ) -> dict[str, PykafkaError]:
        """
        Send requests to many coordinators at once, each until it succeeds or its error is fatal.

        One deadline covers them all. Returns the errors, by transactional id, of the requests that
        were rejected or did not succeed before the deadline.
        """
        deadline = self.cluster.new_deadline(self.config.block_seconds)
        backoff = Backoff(_INITIAL_BACKOFF_SECONDS, self.config.wire.retry_backoff_max_seconds)
        failed: dict[str, PykafkaError] = {}
        missing = dict(requests)
        while missing:
            errors = self._send_round(missing, error_code, action, deadline)
            for name in missing:
                failed.pop(name, None)
            failed |= errors
            missing = {name: requests[name] for name, error in errors.items() if error.retriable}
            if deadline.expired:
                break
            if missing:
                deadline.pause(backoff.next_pause())
        return failed

    def send_once(
        self,
        requests: Mapping[str, RequestFactory[T]],
        deadline: Deadline,
        is_repeated: Callable[[str, T], bool] = repeat_none,
    ) -> tuple[dict[str, T], dict[str, PykafkaError]]:
        """
        Send each request once; return responses and errors by transactional id.

        While another coordinator is silent, a request is repeated if ``is_repeated`` returns true
        for its id and response.

        Raises only an error that prevents all of the requests.
        """
        by_address, errors = self._group_by_coordinator(requests, deadline)
        requested = {
            address: [(name, requests[name]) for name in names]
            for address, names in by_address.items()
        }
        done = request_pipelined(
            *(self.cluster, requested, deadline, self.config.request_seconds),
            is_repeated=is_repeated,
        )
        self._on_failed(done.errors)
        for address, error in done.errors.items():
            errors |= {name: error for name in by_address[address] if name not in done.responses}
        return done.responses, errors

    def send_batched(
        self,
        transactional_ids: Iterable[str],
        request: Callable[[Sequence[str]], RequestFactory[T]],
        deadline: Deadline,
    ) -> list[T]:
        """
        Send each coordinator the requests for all of its ids, once; return the responses.

        ``request`` makes a request for several ids. Coordinators that fail are left out. Raises the
        errors for which no retry can help: of an id whose coordinator the user may not look up, and
        of a coordinator that rejects the login.
        """
        by_address, errors = self._group_by_coordinator(transactional_ids, deadline)
        _raise_permanent(errors.values())
        requested = {
            address: [
                ((address, start), request(ids[start : start + MAX_KEYS_PER_REQUEST]))
                for start in range(0, len(ids), MAX_KEYS_PER_REQUEST)
            ]
            for address, ids in by_address.items()
        }
        done = request_pipelined(self.cluster, requested, deadline, self.config.request_seconds)
        self._on_failed(done.errors)
        _raise_permanent(done.errors.values())
        return list(done.responses.values())

    def send_to_all_brokers(
        self, request: RequestFactory[T], deadline: Deadline
    ) -> tuple[dict[Address, T], dict[Address, PykafkaError]]:
        """
        Send a request to every broker of the cluster; return responses and errors by address.
        """
        requested = {address: [(address, request)] for address in self.cluster.addresses(deadline)}
        done = request_pipelined(self.cluster, requested, deadline, self.config.request_seconds)
        return done.responses, done.errors

    def invalidate_if_moved(self, transactional_id: str, code: int) -> None:
        """
        Forget the coordinator of an id if an error code means that it has moved.
        """
        self._lookup.invalidate_if_moved(transactional_id, code)

    def retry(self, request: Callable[[Deadline], T], action: str) -> T:
        """
        Call ``request`` again after retriable errors, and return its result.

        Raises :class:`TimeoutExceededError`, with the text of the last error, after the deadline.
        """
        failure = f"{action}: not done"
        return retry_within_max_block(
            *(request, self.config, _INITIAL_BACKOFF_SECONDS, failure),
            now=self.cluster.now,
            sleep=self.cluster.sleep,
        )

    def _send_round(
        self,
        requests: Mapping[str, RequestFactory[T]],
        error_code: Callable[[T], int],
        action: str,
        deadline: Deadline,
    ) -> dict[str, PykafkaError]:
        limit = self.cluster.new_deadline(max(deadline.remaining(), _MIN_REQUEST_SECONDS))

        def is_repeated(name: str, response: T) -> bool:
            code = error_code(response)
            # A coordinator that has moved is looked up first.
            if not code or has_moved(code):
                return False
            return self.to_error(code, action, name).retriable

        try:
            responses, errors = self.send_once(requests, limit, is_repeated)
        except PykafkaError as error:
            return dict.fromkeys(requests, error)
        for name in requests.keys() - errors.keys():
            code = error_code(responses[name])
            self.invalidate_if_moved(name, code)
            if code:
                errors[name] = self.to_error(code, action, name)
        return errors

    def _group_by_coordinator(
        self, transactional_ids: Iterable[str], deadline: Deadline
    ) -> tuple[dict[Address, list[str]], dict[str, PykafkaError]]:
        """
        Return ids by the address of their coordinator, and the errors of ids without one.
        """
        transactional_ids = list(transactional_ids)
        missing = [name for name in transactional_ids if name not in self.addresses]
        errors = self._lookup.find_all(missing, deadline) if missing else {}
        by_address: dict[Address, list[str]] = {}
        for name in transactional_ids:
            if name in self.addresses:
                by_address.setdefault(self.addresses[name], []).append(name)
        return by_address, errors

    def _on_failed(self, failed: Mapping[Address, PykafkaError]) -> None:
        for address, error in failed.items():
            self._lookup.invalidate(address)
            if error.retriable:
                logger.info("%s; looking for the new coordinator of its transactions", error)


def _raise_permanent(errors: Iterable[PykafkaError]) -> None:
    for error in errors:
        if not error.retriable:
            raise error
