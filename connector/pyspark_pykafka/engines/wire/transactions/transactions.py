"""
Kafka transactions that one process begins and another ends, found by their transactional ids.

A transaction belongs to (transactional id, producer id, epoch), not to a connection, so any process
that knows the three can end it, and can retry (KIP-98). A later InitProducerId for the same
transactional id aborts an open transaction, and fences every request with the older epoch.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.error_codes import KafkaErrorCode
from pyspark_pykafka.engines.error_mapping import map_error_code
from pyspark_pykafka.engines.wire.records.record_batch import ProducerIdAndEpoch
from pyspark_pykafka.engines.wire.transactions.lookups import TransactionLookups
from pyspark_pykafka.engines.wire.transactions.request_factories import (
    add_partitions,
    end_txn,
    init_producer_id,
)
from pyspark_pykafka.engines.wire.transactions.transaction_errors import (
    FencedError,
    is_concurrent,
    transaction_error,
)
from pyspark_pykafka.engines.wire.transactions.values import (
    DECIDED_STATES,
    TransactionState,
    is_committed,
)
from pyspark_pykafka.errors import (
    AuthorizationError,
    ExactlyOnceError,
    PykafkaError,
    TimeoutExceededError,
)
from pyspark_pykafka.offsets import format_partitions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark_pykafka.engines.transaction_contract import PreparedTransaction
    from pyspark_pykafka.engines.wire.protocol.transactions import (
        AddPartitionsToTxnResponse,
        EndTxnResponse,
        InitProducerIdResponse,
    )
    from pyspark_pykafka.engines.wire.transactions.values import TransactionDescription
    from pyspark_pykafka.offsets import TopicPartition
    from pyspark_pykafka.retry import Deadline
    from pyspark_pykafka.settings.wire_config import ProducerConfig

logger = logging.getLogger("pyspark_pykafka")

# The timeout of a transaction that never begins: any value will do that transaction.max.timeout.ms
# of the brokers allows, which may be short.
_UNUSED_TIMEOUT_MS = 1_000

# A fence id only ends transactions early, so no write waits long for its coordinator, or fails
# without it.
_FENCE_SECONDS = 5.0

_BEING_ABORTED_STATES = (TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE)


@dataclass(slots=True)
class Transactions(TransactionLookups):
    """
    Begins, ends and finds transactions; each call takes at most ``config.block_seconds``.
    """

    def begin(self, transactional_id: str, timeout_ms: int) -> ProducerIdAndEpoch:
        """
        Return the identity for a new transaction; an open one with this id is aborted.

        Raises :class:`KafkaClientError` if ``timeout_ms`` exceeds the brokers' limit, or if the
        brokers cannot list and describe transactions: then no outcome could be verified.
        """
        request = init_producer_id(transactional_id, timeout_ms)
        action = f"beginning the transaction {transactional_id}"
        response = self._coordinators.send(transactional_id, request, _own_code, action)
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

    def begin_with_chosen_id(
        self, choose: Callable[[], str], timeout_ms: int
    ) -> tuple[str, ProducerIdAndEpoch]:
        """
        Begin a transaction with the id that ``choose`` returns; return that id and the identity.

        Each retry chooses again. So an id that was chosen from the state at one coordinator is
        never used at another, which may know a newer state. Raises as :meth:`begin` does.
        """

        def begin_once(deadline: Deadline) -> tuple[str, ProducerIdAndEpoch]:
            name = choose()
            requests = {name: init_producer_id(name, timeout_ms)}
            responses, errors = self._coordinators.send_once(requests, deadline)
            for error in errors.values():
                raise error
            response: InitProducerIdResponse = responses[name]
            if response.error_code:
                self._coordinators.invalidate_if_moved(name, response.error_code)
                action = f"beginning the transaction {name}"
                raise transaction_error(response.error_code, action, name)
            return name, ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

        return self._coordinators.retry(begin_once, "beginning a transaction")

    def add_partitions(
        self, transactional_id: str, identity: ProducerIdAndEpoch, tps: Iterable[TopicPartition]
    ) -> None:
        """
        Register partitions with the coordinator before the transaction writes to them.

        Raises :class:`FencedError`.
        """
        tps = list(tps)
        denied: list[str] = []

        def error_code(response: AddPartitionsToTxnResponse) -> int:
            denied[:] = response.topics_with(KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED)
            return _partitions_code(response)

        request = add_partitions(transactional_id, identity, tps)
        action = f"adding {format_partitions(tps)} to the transaction {transactional_id}"
        try:
            self._coordinators.send(transactional_id, request, error_code, action)
        except AuthorizationError as error:
            if not denied:
                raise
            # The other topics may be written to.
            topics = " and ".join(denied)
            action = f"adding partitions of {topics} to the transaction {transactional_id}"
            code = KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED.value
            raise map_error_code(code, action, f"Write on the topic {topics}") from error

    def end(self, prepared: PreparedTransaction, *, commit: bool) -> None:
        """
        Commit or abort a transaction; repeating the call is not an error.

        Raises :class:`FencedError` if the transaction has not ended in this way, and no longer can.
        """
        action = f"{'committing' if commit else 'aborting'} {prepared.transactional_id}"
        request = end_txn(prepared, commit=commit)
        self._coordinators.send(prepared.transactional_id, request, _own_code, action)

    def end_all(self, prepared: Sequence[PreparedTransaction], *, commit: bool) -> None:
        """
        Commit or abort many transactions: all coordinators at once, under one deadline.

        An abort ignores transactions that no longer exist. Raises as :meth:`end` does, but only
        after all requests have been sent: the other transactions may or may not have ended. Raises
        :class:`ExactlyOnceError` if an abort meets a committed transaction.
        """
        verb = "committing" if commit else "aborting"
        action = f"{verb} {prepared[0].transactional_id} and others" if prepared else verb
        requests = {
            transaction.transactional_id: end_txn(transaction, commit=commit)
            for transaction in prepared
        }
        failed = self._coordinators.send_all(requests, _own_code, action)
        errors = {
            transaction: failed[transaction.transactional_id]
            for transaction in prepared
            if transaction.transactional_id in failed
        }
        if not commit:
            errors = self._still_to_abort(errors, len(prepared))
        if errors:
            raise _combined_error(errors.values(), action, len(prepared), self.config)

    def _still_to_abort(
        self, errors: dict[PreparedTransaction, PykafkaError], total: int
    ) -> dict[PreparedTransaction, PykafkaError]:
        """
        Return the errors of aborts, without those of transactions that need no abort any more.

        Raises :class:`ExactlyOnceError` if a transaction is committed.
        """
        fenced = {
            transaction: error
            for transaction, error in errors.items()
            if isinstance(error, FencedError)
        }
        self._check_none_committed(fenced, total)
        for error in fenced.values():
            logger.info("%s; nothing is left to abort", error)
        return {
            transaction: error for transaction, error in errors.items() if transaction not in fenced
        }

    def _check_none_committed(
        self, fenced: dict[PreparedTransaction, FencedError], total: int
    ) -> None:
        """
        Raise :class:`ExactlyOnceError` if a transaction whose abort was refused is committed.
        """
        # The id, producer id and epoch match the coordinator's only if the error is
        # INVALID_TXN_STATE.
        not_ongoing = [
            transaction
            for transaction, error in fenced.items()
            if error.code == KafkaErrorCode.INVALID_TXN_STATE
        ]
        descriptions = self.describe_all(
            [transaction.transactional_id for transaction in not_ongoing]
        )
        committed = [
            transaction
            for transaction in not_ongoing
            if is_committed(transaction, descriptions[transaction.transactional_id])
        ]
        if committed:
            msg = (
                f"{len(committed)} of the {total} transactions that were to be aborted are "
                f"committed, {committed[0].transactional_id} among them: their rows are visible to "
                "read_committed readers, or will be; writing them again would duplicate them"
            )
            raise ExactlyOnceError("EXACTLY_ONCE_ABORT_MET_COMMIT", msg)

    def abort_unless_taken_over(self, prepared: PreparedTransaction) -> None:
        """
        Abort a transaction and fence its producer, unless another producer has the id by now.

        Returns once the abort is decided: a partition without a leader gets its marker later.
        """
        name = prepared.transactional_id
        was_open = False

        def abort_once(deadline: Deadline) -> None:
            nonlocal was_open
            # Looked up again before each retry: the last request may have aborted the transaction,
            # and another producer may have begun the next one.
            description = self._describe_one(name, deadline)
            if description is None or description.state in DECIDED_STATES:
                return
            is_own = description.prepared == prepared
            if not is_own and not (was_open and _is_being_aborted(prepared, description)):
                return
            was_open = was_open or description.state is TransactionState.ONGOING
            for error in self.fence_once([name], deadline).values():
                raise error

        self._coordinators.retry(abort_once, f"aborting {name}")

    def abort_ids(self, transactional_ids: Sequence[str]) -> None:
        """
        Abort the open transactions of ids, and fence their producers, whichever these are.

        The requests go to all coordinators at once, under one deadline. Returns once the aborts are
        decided: a partition without a leader gets its marker later.
        """
        action = f"aborting {', '.join(transactional_ids[:1])} and other open transactions"
        remaining = list(transactional_ids)

        def abort_once(deadline: Deadline) -> None:
            errors = self.fence_once(remaining, deadline)
            concurrent = [name for name, error in errors.items() if is_concurrent(error)]
            descriptions = self.describe_reachable(concurrent)
            # Only in these states is the abort certain. In any other state a new transaction may be
            # about to begin, or the abort may be lost with its coordinator.
            decided = {
                name
                for name, description in descriptions.items()
                if description and description.state in DECIDED_STATES
            }
            remaining[:] = [name for name in errors if name not in decided]
            for name in sorted(remaining, key=lambda name: errors[name].retriable):
                raise errors[name]

        self._coordinators.retry(abort_once, action)

    def fence_once(
        self, transactional_ids: Iterable[str], deadline: Deadline
    ) -> dict[str, PykafkaError]:
        """
        Send InitProducerId for each id once, which aborts open transactions; return errors by id.

        CONCURRENT_TRANSACTIONS means that a transaction was open, or is being ended.
        """
        requests = {name: init_producer_id(name, _UNUSED_TIMEOUT_MS) for name in transactional_ids}
        responses, errors = self._coordinators.send_once(requests, deadline)
        for name, response in responses.items():
            if response.error_code:
                self._coordinators.invalidate_if_moved(name, response.error_code)
                errors[name] = transaction_error(response.error_code, f"aborting {name}", name)
        return errors

    def commit_once(self, prepared: Iterable[PreparedTransaction], deadline: Deadline) -> None:
        """
        Send a commit for each transaction once; look the results up with :meth:`describe_all`.
        """
        requests = {
            transaction.transactional_id: end_txn(transaction, commit=True)
            for transaction in prepared
        }
        self._coordinators.send_once(requests, deadline)

    def register_id(self, transactional_id: str) -> None:
        """
        Make the brokers know an id, without an open transaction.
        """
        self.begin(transactional_id, _UNUSED_TIMEOUT_MS)

    def try_to_register_fence(self, fence_id: str) -> None:
        """
        Let tasks that begin later find that their write has ended; log a warning if that fails.
        """
        try:
            self.with_time_limit(_FENCE_SECONDS).register_id(fence_id)
        except PykafkaError as error:
            logger.warning(
                "a task that Spark has cancelled may leave its transaction open until "
                "kafka.transaction.timeout.ms has passed: %s",
                error,
            )

    def check_write_not_ended(self, fence_id: str, transactional_id: str) -> None:
        """
        Raise :class:`FencedError` if the brokers know ``fence_id``: the write has ended.

        Without a response the write is taken for one that has not ended: at worst the transaction
        stays open until its timeout.
        """
        try:
            description = self.with_time_limit(_FENCE_SECONDS).describe(fence_id)
        except PykafkaError as error:
            if not error.retriable:
                raise
            logger.warning(
                "it is not known whether the write of %s has ended, so the task continues: %s",
                *(transactional_id, error),
            )
            return
        if description is None:
            return
        msg = (
            f"the write that the transaction {transactional_id} belongs to has ended without it: "
            "another attempt of its task won, or the write failed or was cancelled"
        )
        raise FencedError(msg)


def _is_being_aborted(prepared: PreparedTransaction, description: TransactionDescription) -> bool:
    """
    Return whether a coordinator has bumped the epoch of an open transaction, but has not stored the
    abort yet.

    Such an abort may be lost with the coordinator. The next producer has a later epoch.
    """
    next_epoch = prepared._replace(epoch=prepared.epoch + 1)
    return description.prepared == next_epoch and description.state in _BEING_ABORTED_STATES


def _own_code(response: InitProducerIdResponse | EndTxnResponse) -> int:
    return response.error_code


def _partitions_code(response: AddPartitionsToTxnResponse) -> int:
    """
    Return the code of the partition that failed; the others were not attempted in this case.
    """
    codes = set(response.error_codes)
    return max(
        codes - {KafkaErrorCode.OPERATION_NOT_ATTEMPTED},
        default=max(codes, default=KafkaErrorCode.NONE),
    )


def _combined_error(
    errors: Iterable[PykafkaError], action: str, total: int, config: ProducerConfig
) -> PykafkaError:
    """
    Return one error for the errors of many transactions: a fatal one, if there is any.
    """
    errors = list(errors)
    worst = min(errors, key=lambda error: error.retriable)
    if not worst.retriable:
        return worst
    milliseconds = f"{config.block_seconds * 1000:.0f} ms (kafka.max.block.ms)"
    msg = f"{action}: {len(errors)} of {total} are not done within {milliseconds}: {worst}"
    return TimeoutExceededError(msg)
