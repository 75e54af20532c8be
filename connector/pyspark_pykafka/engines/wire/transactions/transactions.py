"""
Kafka's transactions from several processes: begun by one, ended by another, found by their names.

A transaction belongs to (transactional id, producer id, epoch), not to a connection, so whoever
knows these can end it, and may ask again (KIP-98). A later initialisation of the same transactional
id ends an open transaction, and refuses all that come with the older epoch.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.error_mapping import map_error_code
from pyspark_pykafka.engines.wire.protocol.api_versions import UNSUPPORTED_VERSION
from pyspark_pykafka.engines.wire.protocol.coordinator import (
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    describe_transactions_request,
    list_transactions_request,
)
from pyspark_pykafka.engines.wire.protocol.transactions import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    add_partitions_to_txn_request,
    end_txn_request,
    init_producer_id_request,
)
from pyspark_pykafka.engines.wire.records.record_batch import ProducerIdAndEpoch
from pyspark_pykafka.engines.wire.transactions.coordinators import Coordinators
from pyspark_pykafka.engines.wire.transactions.values import (
    COMMITTED_STATES,
    PreparedTransaction,
    TransactionDescription,
    TransactionState,
    is_committed,
)
from pyspark_pykafka.errors import (
    BrokerUnavailableError,
    ExactlyOnceError,
    KafkaClientError,
    PykafkaError,
    TimeoutExceededError,
)
from pyspark_pykafka.offsets import format_partitions
from pyspark_pykafka.retry import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark_pykafka.engines.contract import TransactionalIdPattern
    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.engines.wire.network.connection import Connection
    from pyspark_pykafka.engines.wire.network.pipeline import RequestFactory
    from pyspark_pykafka.engines.wire.protocol.coordinator import (
        DescribeTransactionsResponse,
        ListTransactionsResponse,
        TransactionStateEntry,
    )
    from pyspark_pykafka.engines.wire.protocol.request import Request
    from pyspark_pykafka.engines.wire.protocol.transactions import (
        AddPartitionsToTxnResponse,
        EndTxnResponse,
        InitProducerIdResponse,
    )
    from pyspark_pykafka.offsets import TopicPartition
    from pyspark_pykafka.settings.wire_config import Address, ProducerConfig

logger = logging.getLogger("pyspark_pykafka")

# Of a transaction that is begun to end another one, and never used; any time will do.
_ABORTING_MS = 60_000

# Kafka's numbers. What is said to one whose transaction ended without it: an old epoch, a wrong
# state, an id that is not mapped.
_FENCED = frozenset({47, 48, 49, 90})
_WRONG_STATE = 48
_INVALID_TIMEOUT = 50
_NOT_ATTEMPTED = 55
_ID_NOT_FOUND = 105
# What an answer without any state comes to: its coordinator is asked for anew.
_SAID_NOTHING = 15

_CONCURRENT = (51, "CONCURRENT_TRANSACTIONS")

_LOOKUPS = (DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS)


# The coordinator knows how the transaction ends, and tells its partitions.
_DECIDED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


class FencedError(KafkaClientError):
    """
    The transaction is not ours any more: it was aborted, timed out, or its name was taken over.
    """

    def __init__(self, message: str, code: int = 90) -> None:
        super().__init__(message, code, "PRODUCER_FENCED", retriable=False)


@dataclass(slots=True)
class Transactions:
    """
    Begins, ends and finds transactions; each question takes at most ``config.block_seconds``.

    The cluster's connections must be for this alone, without answers of others under way on them.
    Raises the errors of :mod:`pyspark_pykafka.errors`.
    """

    cluster: Cluster
    config: ProducerConfig
    _coordinators: Coordinators = field(init=False)

    def __post_init__(self) -> None:
        self._coordinators = Coordinators(self.cluster, self.config, _refused)

    def begin(self, transactional_id: str, timeout_ms: int) -> ProducerIdAndEpoch:
        """
        Return the identity for a new transaction; one that is open under this name is aborted.

        Raises :class:`KafkaClientError` if the brokers allow no transaction to be open so long, or
        do not tell of their transactions, so that nobody could see what has become of it.
        """
        request = _beginning(transactional_id, timeout_ms)
        doing = f"beginning the transaction {transactional_id}"
        answer = self._coordinators.ask(transactional_id, request, _own_code, doing)
        return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

    def begin_with_chosen_id(
        self, choose: Callable[[], str], timeout_ms: int
    ) -> tuple[str, ProducerIdAndEpoch]:
        """
        Do as :meth:`begin` with the name that ``choose`` returns, which is asked for at each try.

        So a name that was chosen by what one coordinator said is never begun at another one, which
        may know more. Returns the name, too.
        """

        def once(deadline: Deadline) -> tuple[str, ProducerIdAndEpoch]:
            name = choose()
            requests = {name: _beginning(name, timeout_ms)}
            answers, errors = self._coordinators.send_once(requests, deadline)
            for error in errors.values():
                raise error
            answer: InitProducerIdResponse = answers[name]
            if answer.error_code:
                self._coordinators.note(name, answer.error_code)
                raise _refused(answer.error_code, f"beginning the transaction {name}")
            return name, ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

        return self._coordinators.retrying(once, "beginning a transaction")

    def add(
        self, transactional_id: str, identity: ProducerIdAndEpoch, tps: Iterable[TopicPartition]
    ) -> None:
        """
        Tell the coordinator which partitions the transaction writes to, before it does.

        Raises :class:`FencedError`.
        """
        tps = list(tps)

        def request(connection: Connection) -> Request[AddPartitionsToTxnResponse]:
            version = connection.version(ADD_PARTITIONS_TO_TXN)
            return add_partitions_to_txn_request(version, transactional_id, identity, tps)

        doing = f"adding {format_partitions(tps)} to the transaction {transactional_id}"
        self._coordinators.ask(transactional_id, request, _worst_of_partitions, doing)

    def end(self, prepared: PreparedTransaction, *, commit: bool) -> None:
        """
        Commit or abort; to ask again for what has been done already is no error.

        Raises :class:`FencedError` if it was not, and cannot be done any more.
        """
        doing = f"{'committing' if commit else 'aborting'} {prepared.transactional_id}"
        request = _ending(prepared, commit=commit)
        self._coordinators.ask(prepared.transactional_id, request, _own_code, doing)

    def end_all(self, prepared: Sequence[PreparedTransaction], *, commit: bool) -> None:
        """
        Commit or abort many: all coordinators at once, under one deadline.

        What is gone needs no abort. Raises as :meth:`end` does; then the others may have ended or
        not, but all have been asked for. Raises :class:`ExactlyOnceError` for an abort of what is
        committed.
        """
        verb = "committing" if commit else "aborting"
        doing = f"{verb} {prepared[0].transactional_id} and others" if prepared else verb
        requests = {it.transactional_id: _ending(it, commit=commit) for it in prepared}
        replies = self._coordinators.send_all(requests, _own_code, doing)
        errors = {
            one: error
            for one in prepared
            if (error := replies[one.transactional_id].error) is not None
        }
        if not commit:
            errors = self._without_gone(errors, len(prepared))
        if errors:
            raise _worst(errors.values(), doing, len(errors), len(prepared), self.config)

    def _without_gone(
        self, errors: dict[PreparedTransaction, PykafkaError], total: int
    ) -> dict[PreparedTransaction, PykafkaError]:
        """
        Return the errors of aborts without those after which nothing is left to abort.

        Raises :class:`ExactlyOnceError` if something is committed.
        """
        gone = {one: error for one, error in errors.items() if isinstance(error, FencedError)}
        # Only the state of the very transaction refuses an abort so: it is committed.
        wrong = [one for one, error in gone.items() if error.code == _WRONG_STATE]
        described = self.describe_all([one.transactional_id for one in wrong])
        done = [one for one in wrong if is_committed(one, described[one.transactional_id])]
        if done:
            msg = (
                f"{len(done)} of the {total} transactions that were to be aborted are committed, "
                f"{done[0].transactional_id} among them: their rows are visible to readers of "
                "committed records, or will be; to write them again would repeat them"
            )
            raise ExactlyOnceError("EXACTLY_ONCE_ABORT_MET_COMMIT", msg)
        for error in gone.values():
            logger.info("%s; nothing of it is left to abort", error)
        return {one: error for one, error in errors.items() if one not in gone}

    def abort(self, transactional_id: str) -> None:
        """
        Abort what is open under a name, whoever wrote it, and refuse what still comes from there.

        Returns once that is decided: a partition that has no leader now learns of it later.
        """
        self.abort_ids([transactional_id])

    def abort_ids(self, transactional_ids: Sequence[str]) -> None:
        """
        Do as :meth:`abort` for many: all coordinators at once, under one deadline.
        """
        doing = f"aborting {', '.join(transactional_ids[:1])} and what else is open"
        left = list(transactional_ids)

        def once(deadline: Deadline) -> None:
            errors = self.fence_once(left, deadline)
            concurrent = [name for name, it in errors.items() if _is_concurrent(it)]
            described = self.describe_reachable(concurrent)
            # In any other state something is about to begin, or a coordinator that dies forgets it.
            decided = {name for name, it in described.items() if it and it.state in _DECIDED}
            left[:] = [name for name in errors if name not in decided]
            for name in sorted(left, key=lambda name: errors[name].retriable):
                raise errors[name]

        self._coordinators.retrying(once, doing)

    def fence_once(
        self, transactional_ids: Iterable[str], deadline: Deadline
    ) -> dict[str, PykafkaError]:
        """
        Begin the next transaction of each name, once, which aborts what is open; return the errors.

        CONCURRENT_TRANSACTIONS is the answer where something was open, or is just being ended.
        """
        requests = {name: _beginning(name, _ABORTING_MS) for name in transactional_ids}
        answers, errors = self._coordinators.send_once(requests, deadline)
        for name, answer in answers.items():
            if answer.error_code:
                self._coordinators.note(name, answer.error_code)
                errors[name] = _refused(answer.error_code, f"aborting {name}")
        return errors

    def end_once(self, prepared: Iterable[PreparedTransaction], deadline: Deadline) -> None:
        """
        Ask once for many to be committed; what comes of it is to be looked up.
        """
        requests = {it.transactional_id: _ending(it, commit=True) for it in prepared}
        self._coordinators.send_once(requests, deadline)

    def register_id(self, transactional_id: str) -> None:
        """
        Let the brokers know a name, for which no transaction is open.
        """
        self.begin(transactional_id, _ABORTING_MS)

    def check_not_fenced(self, mark: str, transactional_id: str) -> None:
        """
        Raise :class:`FencedError` if the brokers know the name ``mark``.
        """
        if self.describe(mark) is None:
            return
        msg = (
            f"the write that the transaction {transactional_id} belongs to has ended without it: "
            "another attempt of its task won, or the write failed or was cancelled"
        )
        raise FencedError(msg)

    def wait_until_visible(self, transactional_ids: Sequence[str]) -> None:
        """
        Return once all partitions know how these ended: coordinators tell them later.

        Until then readers of committed records see nothing of a partition from there on.

        Raises :class:`TimeoutExceededError`.
        """

        def check(_: Deadline) -> None:
            described = self.describe_all(transactional_ids).values()
            slow = [it for it in described if it and it.state in _DECIDED]
            if slow:
                msg = f"the brokers are still ending {len(slow)}: {slow[0].transactional_id}…"
                raise KafkaClientError(msg, *_CONCURRENT, retriable=True)

        self._coordinators.retrying(check, "waiting until the records can be seen")

    def describe(self, transactional_id: str) -> TransactionDescription | None:
        """
        Return where a transactional id stands, or None if the brokers do not know it.
        """
        doing = f"asking for the transaction {transactional_id}"
        request = _describing([transactional_id])
        answer = self._coordinators.ask(transactional_id, request, _code_of_description, doing)
        return _described(answer.transaction_states[0])

    def describe_all(
        self, transactional_ids: Sequence[str]
    ) -> dict[str, TransactionDescription | None]:
        """
        Return where many stand: all coordinators at once, under one deadline.
        """
        described: dict[str, TransactionDescription | None] = {}

        def once(deadline: Deadline) -> None:
            missing = [name for name in transactional_ids if name not in described]
            described.update(self._describe_once(missing, deadline))
            lacking = len(set(transactional_ids)) - len(described)
            if lacking:
                name = next(name for name in transactional_ids if name not in described)
                msg = f"{lacking} coordinators' answers are missing, that for {name} among them"
                raise BrokerUnavailableError(msg)

        if transactional_ids:
            self._coordinators.retrying(once, "asking for transactions")
        return described

    def describe_reachable(
        self, transactional_ids: Sequence[str], deadline: Deadline | None = None
    ) -> dict[str, TransactionDescription | None]:
        """
        Return where those stand whose coordinators say so at once.
        """
        limit = deadline or Deadline.after(self.config.request_seconds)
        try:
            return self._describe_once(transactional_ids, limit)
        except PykafkaError as error:
            logger.info("%s", error)
            return {}

    def _describe_once(
        self, transactional_ids: Sequence[str], deadline: Deadline
    ) -> dict[str, TransactionDescription | None]:
        described: dict[str, TransactionDescription | None] = {}
        answers: Iterable[DescribeTransactionsResponse] = self._coordinators.send_batched(
            transactional_ids, _describing, deadline
        )
        for found in [it for answer in answers for it in answer.transaction_states]:
            if found.error_code in {0, _ID_NOT_FOUND}:
                described[found.transactional_id] = _described(found)
            else:
                self._coordinators.note(found.transactional_id, found.error_code)
                _raise_if_final(found)
        return described

    def list_ids(
        self, family: TransactionalIdPattern, states: Iterable[TransactionState] = ()
    ) -> list[str]:
        """
        Return the transactional ids of a family, in these states if any are given.

        All brokers are asked, at once, and each must answer.
        """
        wanted = list(states)

        def everywhere(deadline: Deadline) -> list[str]:
            found, failed = self._listed(family, wanted, deadline)
            for error in failed.values():
                raise error
            return found

        return self._coordinators.retrying(everywhere, "listing transactions")

    def list_reachable_ids(
        self, family: TransactionalIdPattern, states: Iterable[TransactionState]
    ) -> list[str]:
        """
        Return the same of the brokers that answer in time; the log names the others.

        For what is better ended at once, but ends by itself.
        """
        deadline = Deadline.after(self.config.block_seconds)
        try:
            found, failed = self._listed(family, list(states), deadline)
        except PykafkaError as error:
            logger.warning("transactions could not be listed: %s", error)
            return []
        for address, why in failed.items():
            logger.warning(
                "%s does not say which transactions it coordinates: %s; any that it has open under "
                "%s ends when its time is over (kafka.transaction.timeout.ms)",
                *(address, why, family.head),
            )
        return found

    def list_committed_ids(
        self, family: TransactionalIdPattern, *, at_most: float | None = None
    ) -> list[str]:
        """
        Return those of which the last transaction was committed.

        Every broker must answer, or those that do within ``at_most`` seconds if they are given.
        """
        if at_most is None:
            return self.list_ids(family, COMMITTED_STATES)
        return self.with_time_limit(at_most).list_reachable_ids(family, COMMITTED_STATES)

    def with_time_limit(self, seconds: float) -> Transactions:
        """
        Return the same for questions that may take this long at most, dials included.
        """
        config = self.config
        config = replace(
            config,
            block_seconds=min(config.block_seconds, seconds),
            request_seconds=min(config.request_seconds, seconds),
        )
        quick = Transactions(self.cluster, config)
        # What one learns the other knows.
        quick._coordinators.known = self._coordinators.known
        return quick

    def _listed(
        self, family: TransactionalIdPattern, states: list[TransactionState], deadline: Deadline
    ) -> tuple[list[str], dict[Address, PykafkaError]]:
        wanted = [state.value for state in states]
        answers, failed = self._coordinators.send_to_all_brokers(_listing(wanted), deadline)
        found: set[str] = set()
        for address, answer in answers.items():
            if answer.error_code:
                failed[address] = map_error_code(answer.error_code, "listing transactions")
            found |= set(filter(family.has, answer.transactional_ids))
        return sorted(found), failed


def _check_lookups(connection: Connection) -> None:
    # Here, where no record has been sent: at the end nobody could see what has become of them.
    missing = [it.name for it in _LOOKUPS if not connection.supports(it)]
    if missing:
        msg = (
            f"exactly-once needs brokers that tell of their transactions, from Kafka 3.0 on "
            f"(KIP-664), and {connection.address} does not know {' and '.join(missing)}; upgrade "
            "the brokers, or set deliveryGuarantee to at-least-once"
        )
        raise KafkaClientError(msg, *UNSUPPORTED_VERSION, retriable=False)


def _beginning(name: str, timeout_ms: int) -> RequestFactory[InitProducerIdResponse]:
    def request(connection: Connection) -> Request[InitProducerIdResponse]:
        _check_lookups(connection)
        return init_producer_id_request(connection.version(INIT_PRODUCER_ID), name, timeout_ms)

    return request


def _ending(prepared: PreparedTransaction, *, commit: bool) -> RequestFactory[EndTxnResponse]:
    name, *identity = prepared
    return lambda connection: end_txn_request(
        connection.version(END_TXN), name, ProducerIdAndEpoch(*identity), commit=commit
    )


def _listing(states: list[str]) -> RequestFactory[ListTransactionsResponse]:
    def request(connection: Connection) -> Request[ListTransactionsResponse]:
        _check_lookups(connection)
        return list_transactions_request(connection.version(LIST_TRANSACTIONS), states)

    return request


def _describing(names: Sequence[str]) -> RequestFactory[DescribeTransactionsResponse]:
    def request(connection: Connection) -> Request[DescribeTransactionsResponse]:
        _check_lookups(connection)
        return describe_transactions_request(connection.version(DESCRIBE_TRANSACTIONS), names)

    return request


def _described(found: TransactionStateEntry) -> TransactionDescription | None:
    if found.error_code:
        return None
    return TransactionDescription(
        found.transactional_id,
        TransactionState(found.transaction_state),
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        found.transaction_start_time_ms,
        found.partitions,
    )


def _code_of_description(answer: DescribeTransactionsResponse) -> int:
    if not answer.transaction_states:
        return _SAID_NOTHING
    code = answer.transaction_states[0].error_code
    return 0 if code == _ID_NOT_FOUND else code


def _own_code(answer: InitProducerIdResponse | EndTxnResponse) -> int:
    return answer.error_code


def _is_concurrent(error: PykafkaError) -> bool:
    return isinstance(error, KafkaClientError) and error.code == _CONCURRENT[0]


def _raise_if_final(found: TransactionStateEntry) -> None:
    error = _refused(found.error_code, f"asking for the transaction {found.transactional_id}")
    if not error.retriable:
        raise error


def _worst(
    errors: Iterable[PykafkaError], doing: str, failed: int, total: int, config: ProducerConfig
) -> PykafkaError:
    """
    Return the error to raise for those of many transactions: one that does not pass, if any is.
    """
    worst = min(errors, key=lambda error: error.retriable)
    if not worst.retriable:
        return worst
    milliseconds = f"{config.block_seconds * 1000:.0f} ms (kafka.max.block.ms)"
    msg = f"{doing}: {failed} of {total} are not done within {milliseconds}: {worst}"
    return TimeoutExceededError(msg)


def _worst_of_partitions(answer: AddPartitionsToTxnResponse) -> int:
    """
    Return the code of the partition that failed; the others were not attempted then.
    """
    codes = set(answer.error_codes)
    return max(codes - {_NOT_ATTEMPTED}, default=max(codes, default=0))


def _refused(code: int, doing: str) -> PykafkaError:
    error = map_error_code(code, doing)
    if code in _FENCED:
        msg = f"{error}: the transaction was ended, timed out, or its name was taken over"
        return FencedError(msg, code)
    if code == _INVALID_TIMEOUT:
        msg = (
            f"{error}: the brokers let no transaction be open so long; lower "
            "kafka.transaction.timeout.ms, or raise transaction.max.timeout.ms on the brokers"
        )
        return KafkaClientError(msg, code, "INVALID_TRANSACTION_TIMEOUT", retriable=False)
    return error
