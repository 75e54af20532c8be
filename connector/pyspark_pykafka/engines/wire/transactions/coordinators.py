"""
Asking the brokers that coordinate transactions, wherever they are now.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pyspark_pykafka.engines.error_mapping import map_error_code
from pyspark_pykafka.engines.wire.network.max_block import retry_within_max_block
from pyspark_pykafka.engines.wire.network.pipeline import request_pipelined
from pyspark_pykafka.engines.wire.protocol.coordinator import (
    FIND_COORDINATOR,
    MIN_BATCHED_VERSION,
    find_coordinator_request,
)
from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError
from pyspark_pykafka.retry import Backoff, Deadline
from pyspark_pykafka.settings.wire_config import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.engines.wire.network.connection import Connection
    from pyspark_pykafka.engines.wire.network.pipeline import RequestFactory
    from pyspark_pykafka.engines.wire.protocol.coordinator import Coordinator
    from pyspark_pykafka.settings.wire_config import ProducerConfig

T = TypeVar("T")

logger = logging.getLogger("pyspark_pykafka")

# A coordinator that loads, is away, or is another one now.
_NOT_COORDINATOR = frozenset({14, 15, 16})

# A coordinator that is ending the last transaction says "concurrent" until it is done, which takes
# a few milliseconds.
_LEAST_PAUSE = 0.01

# What one request names: brokers take 100 MB, and answer a thousand names in some milliseconds.
_MOST_NAMES = 1_000

# A broker that takes longer to say who coordinates is left for another one.
_LOOKUP_SECONDS = 5.0

# What the last question before a deadline may take all the same, or it could never be answered.
_LEAST_SECONDS = 1.0


class Reply(NamedTuple):
    """
    What a coordinator says in the end: an answer, or an error, after which ``answer`` is None.
    """

    answer: Any
    error: PykafkaError | None = None


@dataclass(slots=True)
class Coordinators:
    """
    Knows who coordinates which transactional id; ``refused`` makes errors of Kafka's codes.

    Each call takes at most ``config.block_seconds``. Raises the errors of
    :mod:`pyspark_pykafka.errors`.
    """

    cluster: Cluster
    config: ProducerConfig
    refused: Callable[[int, str], PykafkaError]
    known: dict[str, Address] = field(default_factory=dict)

    def ask(self, name: str, request: RequestFactory[T], code: Callable[[T], int], doing: str) -> T:
        """
        Ask the coordinator of a name until it is done, or refused for good.
        """

        def once(deadline: Deadline) -> T:
            if name not in self.known:
                for error in self._learn([name], deadline).values():
                    raise error
            address = self.known[name]
            try:
                connection = self.cluster.connection_at(address, deadline)
                answer = self.cluster.request(connection, request(connection), deadline)
            except PykafkaError:
                self._forget(address)
                raise
            found = code(answer)
            self.note(name, found)
            if found:
                raise self.refused(found, doing)
            return answer

        return self.retrying(once, doing)

    def send_all(
        self, requests: Mapping[str, RequestFactory[T]], code: Callable[[T], int], doing: str
    ) -> dict[str, Reply]:
        """
        Ask the coordinators of many names, all at once, until each is done or refused for good.

        The deadline is one for all of them. Where it passes, or a request was refused, the reply
        has the error.
        """
        deadline = Deadline.after(self.config.block_seconds)
        backoff = Backoff(_LEAST_PAUSE, self.config.direct.retry_backoff_max_seconds)
        replies: dict[str, Reply] = {}
        missing = dict(requests)
        while missing:
            replies |= self._round(missing, code, doing, deadline)
            missing = {
                name: requests[name]
                for name in missing
                if (error := replies[name].error) is not None and error.retriable
            }
            if deadline.expired:
                break
            if missing:
                time.sleep(deadline.remaining(max_seconds=backoff.next_pause()))
        return replies

    def send_once(
        self, requests: Mapping[str, RequestFactory[T]], deadline: Deadline
    ) -> tuple[dict[str, T], dict[str, PykafkaError]]:
        """
        Return the answers that come at the first try, and the errors of the others, by name.

        Raises only what keeps all of them from being asked.
        """
        by_address, errors = self._addresses(requests, deadline)
        wanted = {
            address: [(name, requests[name]) for name in names]
            for address, names in by_address.items()
        }
        done = request_pipelined(self.cluster, wanted, deadline, self.config.request_seconds)
        self._failed(done.failed)
        for address, error in done.failed.items():
            errors |= {name: error for name in by_address[address] if name not in done.answers}
        return done.answers, errors

    def send_batched(
        self,
        names: Iterable[str],
        request: Callable[[Sequence[str]], RequestFactory[T]],
        deadline: Deadline,
    ) -> list[T]:
        """
        Return what coordinators answer at the first try to requests that name many.
        """
        wanted = {
            address: [
                ((address, at), request(some[at : at + _MOST_NAMES]))
                for at in range(0, len(some), _MOST_NAMES)
            ]
            for address, some in self._addresses(names, deadline)[0].items()
        }
        done = request_pipelined(self.cluster, wanted, deadline, self.config.request_seconds)
        self._failed(done.failed)
        return list(done.answers.values())

    def send_to_all_brokers(
        self, request: RequestFactory[T], deadline: Deadline
    ) -> tuple[dict[Address, T], dict[Address, PykafkaError]]:
        """
        Return what all brokers of the cluster answer to one question, and who does not, and why.
        """
        wanted = {at: [(at, request)] for at in self.cluster.addresses(deadline)}
        done = request_pipelined(self.cluster, wanted, deadline, self.config.request_seconds)
        return done.answers, done.failed

    def note(self, name: str, code: int) -> None:
        """
        Look again who coordinates a name, if the code of an answer says that it is another one.
        """
        if code in _NOT_COORDINATOR:
            self.known.pop(name, None)

    def retrying(self, ask: Callable[[Deadline], T], doing: str) -> T:
        """
        Ask again after errors that pass; the last one is told when time is over.
        """
        lacking = f"{doing}: not done"
        return retry_within_max_block(ask, self.config, _LEAST_PAUSE, lacking)

    def _round(
        self,
        requests: Mapping[str, RequestFactory[T]],
        code: Callable[[T], int],
        doing: str,
        deadline: Deadline,
    ) -> dict[str, Reply]:
        limit = Deadline.after(max(deadline.remaining(), _LEAST_SECONDS))
        try:
            answers, errors = self.send_once(requests, limit)
        except PykafkaError as error:
            return dict.fromkeys(requests, Reply(None, error))
        replies = {name: Reply(None, error) for name, error in errors.items()}
        for name, answer in answers.items():
            found = code(answer)
            self.note(name, found)
            replies[name] = Reply(None, self.refused(found, doing)) if found else Reply(answer)
        return replies

    def _addresses(
        self, names: Iterable[str], deadline: Deadline
    ) -> tuple[dict[Address, list[str]], dict[str, PykafkaError]]:
        """
        Return the names by who coordinates them, and why it is not known of the others.
        """
        names = list(names)
        missing = [name for name in names if name not in self.known]
        errors = self._learn(missing, deadline) if missing else {}
        found: dict[Address, list[str]] = {}
        for name in names:
            if name in self.known:
                found.setdefault(self.known[name], []).append(name)
        return found, errors

    def _failed(self, failed: Mapping[Address, PykafkaError]) -> None:
        for address, error in failed.items():
            self._forget(address)
            if error.retriable:
                logger.info("%s; looking for who coordinates its transactions now", error)

    def _forget(self, address: Address) -> None:
        """
        Look again who coordinates all names of a broker that failed, so that it fails only once.
        """
        for name in [name for name, at in self.known.items() if at == address]:
            del self.known[name]

    def _learn(self, names: Sequence[str], deadline: Deadline) -> dict[str, PykafkaError]:
        """
        Look who coordinates these names; return the errors of those that nobody does at the moment.
        """
        connection = self.cluster.any_connection(deadline)
        version = connection.version(FIND_COORDINATOR)
        many = version >= MIN_BATCHED_VERSION
        size = _MOST_NAMES if many else 1
        errors: dict[str, PykafkaError] = {}
        for at in range(0, len(names), size):
            some = names[at : at + size]
            request = find_coordinator_request(version, some)
            limit = Deadline.after(deadline.remaining(_LOOKUP_SECONDS))
            answer = self.cluster.request(connection, request, limit)
            found = {one.key if many else some[0]: one for one in answer.coordinators}
            for name in some:
                error = self._note(name, found.get(name), connection)
                if error is not None:
                    errors[name] = error
        return errors

    def _note(
        self, name: str, found: Coordinator | None, connection: Connection
    ) -> PykafkaError | None:
        if found is None:
            msg = f"{connection.address} does not say who coordinates {name}"
            return BrokerUnavailableError(msg)
        if found.error_code:
            return map_error_code(found.error_code, f"asking who coordinates {name}")
        self.known[name] = Address(found.host, found.port)
        return None
