"""
Asking the brokers that coordinate transactions, wherever they are now.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark_pykafka.client import Address, map_error_code
from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.wire.blocking import retrying_while_blocked
from pyspark_pykafka.wire.transaction_lookups import (
    FIND_COORDINATORS,
    MANY_COORDINATORS,
    find_coordinators_request,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark_pykafka.client import ProducerConfig
    from pyspark_pykafka.wire.cluster import Cluster
    from pyspark_pykafka.wire.connection import Connection
    from pyspark_pykafka.wire.messages import Request
    from pyspark_pykafka.wire.transaction_lookups import CoordinatorsFound

    #: Makes a request in a version that the broker at the other end knows.
    MakesRequest = Callable[[Connection], Request]

T = TypeVar("T")

logger = logging.getLogger("pyspark_pykafka")

# A coordinator that loads, is away, or is another one now.
_NOT_COORDINATOR = frozenset({14, 15, 16})

# What is asked of one coordinator before its first answer is taken in.
_MOST_AT_ONCE = 100

# A coordinator that is ending the last transaction says "concurrent" until it is done, which takes
# a few milliseconds.
_LEAST_PAUSE = 0.01


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
    _known: dict[str, Address] = field(init=False, default_factory=dict)

    def ask(self, name: str, request: MakesRequest, code: Callable[[Any], int], doing: str) -> Any:
        """
        Ask the coordinator of a name until it is done, or refused for good.
        """

        def once(deadline: Deadline) -> Any:
            if name not in self._known:
                self._learn([name], deadline)
            try:
                connection = self.cluster.connection_at(self._known[name], deadline)
                answer = self.cluster.request(connection, request(connection), deadline)
            except PykafkaError:
                del self._known[name]
                raise
            found = code(answer)
            if found in _NOT_COORDINATOR:
                del self._known[name]
            if found:
                raise self.refused(found, doing)
            return answer

        return self.retrying(once, doing)

    def ask_at_once(self, requests: Mapping[str, MakesRequest]) -> dict[str, Any]:
        """
        Return the answers by name, as far as they come at the first try.

        A coordinator gets many requests before the first answer is taken in.
        """
        answers: dict[str, Any] = {}
        for address, names in self.of(requests).items():
            try:
                self._converse(address, names, requests, answers)
            except PykafkaError as error:
                if not error.retriable:
                    raise
                logger.info("%s; trying again", error)
                for name in names:
                    del self._known[name]
        return answers

    def of(self, names: Iterable[str]) -> dict[Address, list[str]]:
        """
        Return the names by who coordinates them.
        """
        names = list(names)
        missing = [name for name in names if name not in self._known]
        if missing:
            doing = "asking who coordinates transactions"
            self.retrying(lambda deadline: self._learn(missing, deadline), doing)
        found: dict[Address, list[str]] = {}
        for name in names:
            found.setdefault(self._known[name], []).append(name)
        return found

    def retrying(self, ask: Callable[[Deadline], T], doing: str) -> T:
        """
        Ask again after errors that pass; the last one is told when time is over.
        """
        lacking = f"{doing}: not done"
        return retrying_while_blocked(ask, self.config, _LEAST_PAUSE, lacking)

    def _converse(
        self,
        address: Address,
        names: Sequence[str],
        requests: Mapping[str, MakesRequest],
        answers: dict[str, Any],
    ) -> None:
        deadline = Deadline.after(self.config.request_seconds)
        connection = self.cluster.connection_at(address, deadline)
        rest = iter(names)
        try:
            while some := list(islice(rest, _MOST_AT_ONCE)):
                for name in some:
                    connection.send(requests[name](connection), deadline)
                for name in some:
                    answers[name] = connection.receive(deadline)
        except BaseException:
            self.cluster.drop(connection)
            raise

    def _learn(self, names: Sequence[str], deadline: Deadline) -> None:
        connection = self.cluster.any_connection(deadline)
        version = connection.version(FIND_COORDINATORS)
        many = version >= MANY_COORDINATORS
        for some in [names] if many else [[name] for name in names]:
            request = find_coordinators_request(version, some)
            answer: CoordinatorsFound = self.cluster.request(connection, request, deadline)
            found = {one.key if many else some[0]: one for one in answer.coordinators}
            for name in some:
                if name not in found:
                    msg = f"{connection.address} does not say who coordinates {name}"
                    raise BrokerUnavailableError(msg)
                host, port, code = found[name][1:]
                if code:
                    raise map_error_code(code, f"asking who coordinates {name}")
                self._known[name] = Address(host, port)
