"""
Describing and listing transactions (KIP-664): these requests change nothing on the brokers.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.error_codes import KafkaErrorCode
from pyspark_pykafka.engines.error_mapping import map_error_code
from pyspark_pykafka.engines.wire.transactions.coordinators import Coordinators
from pyspark_pykafka.engines.wire.transactions.request_factories import (
    describe_transactions,
    list_transactions,
)
from pyspark_pykafka.engines.wire.transactions.transaction_errors import (
    concurrent_transactions_error,
    transaction_error,
)
from pyspark_pykafka.engines.wire.transactions.values import (
    COMMITTED_STATES,
    DECIDED_STATES,
    TransactionDescription,
    TransactionState,
)
from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Self

    from pyspark_pykafka.engines.transaction_contract import TransactionalIdPattern
    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.engines.wire.protocol.transaction_states import (
        DescribeTransactionsResponse,
        TransactionStateEntry,
    )
    from pyspark_pykafka.retry import Deadline
    from pyspark_pykafka.settings.wire_config import Address, ProducerConfig

logger = logging.getLogger("pyspark_pykafka")


@dataclass(slots=True)
class TransactionLookups:
    """
    Finds transactions by id or pattern; each call takes at most ``config.block_seconds``.

    The cluster's connections must be used for nothing else: no other request may be in flight.
    Raises the errors of :mod:`pyspark_pykafka.errors`.
    """

    cluster: Cluster
    config: ProducerConfig
    #: The coordinators of transactional ids, shared by copies.
    addresses: dict[str, Address] = field(default_factory=dict, repr=False)
    _coordinators: Coordinators = field(init=False)

    def __post_init__(self) -> None:
        self._coordinators = Coordinators(
            self.cluster, self.config, transaction_error, self.addresses
        )

    def describe(self, transactional_id: str) -> TransactionDescription | None:
        """
        Return the state of a transactional id, or None if the brokers do not know the id.
        """
        action = f"describing the transaction {transactional_id}"
        request = describe_transactions([transactional_id])
        response = self._coordinators.send(transactional_id, request, _description_code, action)
        return _to_description(response.transaction_states[0])

    def describe_all(
        self, transactional_ids: Sequence[str]
    ) -> dict[str, TransactionDescription | None]:
        """
        Return the states of many ids: all coordinators at once, under one deadline.
        """
        descriptions: dict[str, TransactionDescription | None] = {}

        def once(deadline: Deadline) -> None:
            missing = [name for name in transactional_ids if name not in descriptions]
            descriptions.update(self._describe_once(missing, deadline))
            missing_count = len(set(transactional_ids)) - len(descriptions)
            if missing_count:
                name = next(name for name in transactional_ids if name not in descriptions)
                msg = f"{missing_count} transactions were not described, {name} among them"
                raise BrokerUnavailableError(msg)

        if transactional_ids:
            self._coordinators.retry(once, "describing transactions")
        return descriptions

    def describe_reachable(
        self, transactional_ids: Sequence[str], deadline: Deadline | None = None
    ) -> dict[str, TransactionDescription | None]:
        """
        Return the states of the ids whose coordinators answer the first request.
        """
        limit = deadline or self.cluster.new_deadline(self.config.request_seconds)
        try:
            return self._describe_once(transactional_ids, limit)
        except PykafkaError as error:
            logger.info("%s", error)
            return {}

    def _describe_one(
        self, transactional_id: str, deadline: Deadline
    ) -> TransactionDescription | None:
        """
        Request the state of an id once; raise the coordinator's error if that fails.
        """
        requests = {transactional_id: describe_transactions([transactional_id])}
        responses, errors = self._coordinators.send_once(requests, deadline)
        for error in errors.values():
            raise error
        code = _description_code(responses[transactional_id])
        if code:
            self._coordinators.invalidate_if_moved(transactional_id, code)
            action = f"describing the transaction {transactional_id}"
            raise transaction_error(code, action, transactional_id)
        return _to_description(responses[transactional_id].transaction_states[0])

    def _describe_once(
        self, transactional_ids: Sequence[str], deadline: Deadline
    ) -> dict[str, TransactionDescription | None]:
        descriptions: dict[str, TransactionDescription | None] = {}
        responses: Iterable[DescribeTransactionsResponse] = self._coordinators.send_batched(
            transactional_ids, describe_transactions, deadline
        )
        for entry in [state for response in responses for state in response.transaction_states]:
            if entry.error_code in {KafkaErrorCode.NONE, KafkaErrorCode.TRANSACTIONAL_ID_NOT_FOUND}:
                descriptions[entry.transactional_id] = _to_description(entry)
            else:
                self._coordinators.invalidate_if_moved(entry.transactional_id, entry.error_code)
                _raise_if_fatal(entry)
        return descriptions

    def wait_until_visible(self, transactional_ids: Sequence[str]) -> None:
        """
        Return once these transactions have their markers in all of their partitions.

        A coordinator writes the markers after its decision. Until then ``read_committed`` readers
        of a partition stop at the transaction's first record. Raises
        :class:`TimeoutExceededError`.
        """

        def check(_: Deadline) -> None:
            descriptions = self.describe_all(transactional_ids).values()
            pending = [
                transaction
                for transaction in descriptions
                if transaction and transaction.state in DECIDED_STATES
            ]
            if pending:
                first = pending[0].transactional_id
                msg = f"the brokers are still ending {len(pending)} transactions: {first}…"
                raise concurrent_transactions_error(msg)

        self._coordinators.retry(check, "waiting until the records are visible")

    def list_ids(
        self, pattern: TransactionalIdPattern, states: Iterable[TransactionState] = ()
    ) -> list[str]:
        """
        Return the ids that match a pattern and are in one of these states, or in any if none is
        given.

        Every broker must answer; all are queried at once.
        """
        requested = list(states)

        def once(deadline: Deadline) -> list[str]:
            ids, failed = self._list_once(pattern, requested, deadline)
            for error in failed.values():
                raise error
            return ids

        return self._coordinators.retry(once, "listing transactions")

    def list_reachable_ids(
        self, pattern: TransactionalIdPattern, states: Iterable[TransactionState]
    ) -> list[str]:
        """
        Return the same as :meth:`list_ids`, but only from the brokers that answer in time; log the
        other brokers.

        This is for transactions that should end now, but would also time out by themselves.
        """
        deadline = self.cluster.new_deadline(self.config.block_seconds)
        try:
            ids, failed = self._list_once(pattern, list(states), deadline)
        except PykafkaError as error:
            logger.warning("transactions could not be listed: %s", error)
            return []
        for address, reason in failed.items():
            logger.warning(
                "the transactions that %s coordinates could not be listed within %.0f s: %s; those "
                "that are open under %s end after kafka.transaction.timeout.ms",
                *(address, self.config.block_seconds, reason, pattern.prefix),
            )
        return ids

    def list_committed_ids(
        self, pattern: TransactionalIdPattern, *, max_seconds: float | None = None
    ) -> list[str]:
        """
        Return the ids whose last transaction was committed.

        Every broker must answer, unless ``max_seconds`` is given: then brokers that do not answer
        within that time are left out.
        """
        if max_seconds is None:
            return self.list_ids(pattern, COMMITTED_STATES)
        return self.with_time_limit(max_seconds).list_reachable_ids(pattern, COMMITTED_STATES)

    def with_time_limit(self, seconds: float) -> Self:
        """
        Return a copy whose calls take at most this long, connecting included.
        """
        config = self.config
        config = replace(
            config,
            block_seconds=min(config.block_seconds, seconds),
            request_seconds=min(config.request_seconds, seconds),
            delivery_seconds=min(config.delivery_seconds, seconds),
        )
        return type(self)(self.cluster, config, self.addresses)

    def _list_once(
        self, pattern: TransactionalIdPattern, states: list[TransactionState], deadline: Deadline
    ) -> tuple[list[str], dict[Address, PykafkaError]]:
        request = list_transactions([state.value for state in states])
        responses, failed = self._coordinators.send_to_all_brokers(request, deadline)
        ids: set[str] = set()
        for address, response in responses.items():
            if response.error_code:
                failed[address] = map_error_code(response.error_code, "listing transactions")
            ids |= set(filter(pattern.matches, response.transactional_ids))
        return sorted(ids), failed


def _to_description(entry: TransactionStateEntry) -> TransactionDescription | None:
    if entry.error_code:
        return None
    return TransactionDescription(
        entry.transactional_id,
        TransactionState(entry.transaction_state),
        entry.producer_id,
        entry.producer_epoch,
        entry.transaction_timeout_ms,
        entry.transaction_start_time_ms,
        entry.partitions,
    )


def _description_code(response: DescribeTransactionsResponse) -> int:
    if not response.transaction_states:
        # An empty response: look the coordinator up again.
        return KafkaErrorCode.COORDINATOR_NOT_AVAILABLE
    code = response.transaction_states[0].error_code
    return KafkaErrorCode.NONE if code == KafkaErrorCode.TRANSACTIONAL_ID_NOT_FOUND else code


def _raise_if_fatal(entry: TransactionStateEntry) -> None:
    action = f"describing the transaction {entry.transactional_id}"
    error = transaction_error(entry.error_code, action, entry.transactional_id)
    if not error.retriable:
        raise error
