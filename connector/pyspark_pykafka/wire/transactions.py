"""
Kafka's transactions from several processes: begun by one, ended by another, found by their names.

A transaction belongs to (transactional id, producer id, epoch), not to a connection, so whoever
knows these can end it, and may ask again (KIP-98). A later initialisation of the same transactional
id ends an open transaction, and refuses all that come with the older epoch.
"""

from __future__ import annotations

import enum
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.client import map_error_code
from pyspark_pykafka.errors import KafkaClientError, PykafkaError
from pyspark_pykafka.offsets import describe
from pyspark_pykafka.wire.coordinators import Coordinators
from pyspark_pykafka.wire.outgoing import Identity
from pyspark_pykafka.wire.transaction_lookups import (
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    describe_transactions_request,
    list_transactions_request,
)
from pyspark_pykafka.wire.transaction_messages import (
    ADD_PARTITIONS,
    END,
    INIT_PRODUCER_ID,
    add_partitions_request,
    end_request,
    init_producer_id_request,
)
from pyspark_pykafka.wire.versions import UNSUPPORTED_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark_pykafka.client import Address, ProducerConfig
    from pyspark_pykafka.offsets import TopicPartition
    from pyspark_pykafka.retry import Deadline
    from pyspark_pykafka.wire.cluster import Cluster
    from pyspark_pykafka.wire.connection import Connection
    from pyspark_pykafka.wire.coordinators import MakesRequest
    from pyspark_pykafka.wire.messages import Request
    from pyspark_pykafka.wire.transaction_lookups import (
        TransactionsDescribed,
        TransactionsListed,
        TransactionState,
    )
    from pyspark_pykafka.wire.transaction_messages import Ended, PartitionsAdded, ProducerId

logger = logging.getLogger("pyspark_pykafka")

# Of a transaction that is begun to end another one, and never used; any time will do.
_ABORTING_MS = 60_000

# Kafka's numbers. What is said to one whose transaction ended without it: an old epoch, a wrong
# state, an id that is not mapped.
_FENCED = frozenset({47, 48, 49, 90})
_INVALID_TIMEOUT = 50
_NOT_ATTEMPTED = 55
_ID_NOT_FOUND = 105
# What an answer without any state comes to: its coordinator is asked for anew.
_SAID_NOTHING = 15

_CONCURRENT = (51, "CONCURRENT_TRANSACTIONS")

_LOOKUPS = (DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS)


class State(enum.Enum):
    """
    Where a transaction stands, in Kafka's words (``TransactionState``).
    """

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


# The coordinator knows how the transaction ends, and tells its partitions.
_DECIDED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)


class Prepared(NamedTuple):
    """
    A transaction that has all its records and waits for its end.
    """

    transactional_id: str
    producer_id: int
    epoch: int


class Described(NamedTuple):
    """
    What the coordinator says of a transactional id; times are milliseconds of the epoch.
    """

    transactional_id: str
    state: State
    producer_id: int
    epoch: int
    timeout_ms: int
    started_ms: int
    partitions: int

    @property
    def prepared(self) -> Prepared:
        """
        Whose transaction it is, or was.
        """
        return Prepared(self.transactional_id, self.producer_id, self.epoch)


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

    def begin(self, transactional_id: str, timeout_ms: int) -> Identity:
        """
        Return the identity for a new transaction; one that is open under this name is aborted.

        Raises :class:`KafkaClientError` if the brokers allow no transaction to be open so long, or
        do not tell of their transactions, so that nobody could see what has become of it.
        """
        request = _beginning(transactional_id, timeout_ms)
        doing = f"beginning the transaction {transactional_id}"
        answer: ProducerId = self._coordinators.ask(transactional_id, request, _own_code, doing)
        return Identity(answer.producer_id, answer.producer_epoch)

    def add(self, transactional_id: str, identity: Identity, tps: Iterable[TopicPartition]) -> None:
        """
        Tell the coordinator which partitions the transaction writes to, before it does.

        Raises :class:`FencedError`.
        """
        tps = list(tps)

        def request(connection: Connection) -> Request:
            version = connection.version(ADD_PARTITIONS)
            return add_partitions_request(version, transactional_id, identity, tps)

        doing = f"adding {describe(tps)} to the transaction {transactional_id}"
        self._coordinators.ask(transactional_id, request, _worst_of_partitions, doing)

    def end(self, prepared: Prepared, *, commit: bool) -> None:
        """
        Commit or abort; to ask again for what has been done already is no error.

        Raises :class:`FencedError` if it was not, and cannot be done any more.
        """
        doing = f"{'committing' if commit else 'aborting'} {prepared.transactional_id}"
        request = _ending(prepared, commit=commit)
        self._coordinators.ask(prepared.transactional_id, request, _own_code, doing)

    def end_all(self, prepared: Sequence[Prepared], *, commit: bool) -> None:
        """
        Commit or abort many, without waiting for one before the next is asked for.

        What is gone needs no abort. Raises as :meth:`end` does; then the others may have ended or
        not, but all have been asked for.
        """
        requests = {it.transactional_id: _ending(it, commit=commit) for it in prepared}
        answers = self._coordinators.ask_at_once(requests)
        missing = [
            one
            for one in prepared
            if (answer := answers.get(one.transactional_id)) is None or answer.error_code
        ]
        for at, one in enumerate(missing):
            # It alone, again: what passes is waited for, and the rest has its error.
            try:
                self.end(one, commit=commit)
            except FencedError as gone:
                if commit:
                    raise
                logger.info("%s; nothing of it is left to abort", gone)
            except PykafkaError:
                # Time is over, but others may have a coordinator that is well.
                rest = [it.transactional_id for it in missing[at + 1 :]]
                try:
                    self._coordinators.ask_at_once({name: requests[name] for name in rest})
                except PykafkaError as more:
                    logger.info("%s", more)
                raise

    def abort(self, transactional_id: str) -> None:
        """
        Abort what is open under a name, whoever wrote it, and refuse what still comes from there.

        Returns once that is decided: a partition that has no leader now learns of it later.
        """
        request = _beginning(transactional_id, _ABORTING_MS)
        doing = f"aborting the transaction {transactional_id}"

        def once(_: Deadline) -> None:
            answer = self._coordinators.ask(transactional_id, request, _code_but_concurrent, doing)
            if not answer.error_code:
                return
            found = self.describe(transactional_id)
            # In any other state something is about to begin, or a coordinator that dies forgets it.
            if found is None or found.state not in _DECIDED:
                raise KafkaClientError(f"{doing}: {_CONCURRENT[1]}", *_CONCURRENT, retriable=True)

        self._coordinators.retrying(once, doing)

    def mark(self, transactional_id: str) -> None:
        """
        Let the brokers know a name, for which no transaction is open.
        """
        self.begin(transactional_id, _ABORTING_MS)

    def check_unmarked(self, mark: str, transactional_id: str) -> None:
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

    def describe(self, transactional_id: str) -> Described | None:
        """
        Return where a transactional id stands, or None if the brokers do not know it.
        """
        doing = f"asking for the transaction {transactional_id}"
        request = _describing([transactional_id])
        answer = self._coordinators.ask(transactional_id, request, _code_of_description, doing)
        return _described(answer.transaction_states[0])

    def describe_all(self, transactional_ids: Sequence[str]) -> dict[str, Described | None]:
        """
        Return where many stand, with one question for each coordinator.
        """
        described = self._describe_at_once(transactional_ids)
        missing = [name for name in transactional_ids if name not in described]
        return described | {name: self.describe(name) for name in missing}

    def describe_some(self, transactional_ids: Sequence[str]) -> dict[str, Described | None]:
        """
        Return where those stand whose coordinators say so at once; after an error, which is told.
        """
        try:
            return self._describe_at_once(transactional_ids)
        except PykafkaError as error:
            logger.info("%s", error)
            return {}

    def _describe_at_once(self, transactional_ids: Sequence[str]) -> dict[str, Described | None]:
        described: dict[str, Described | None] = {}
        for names in self._coordinators.of(transactional_ids).values():
            answers: Iterable[TransactionsDescribed] = self._coordinators.ask_at_once(
                {names[0]: _describing(names)}
            ).values()
            for found in [it for answer in answers for it in answer.transaction_states]:
                if found.error_code in {0, _ID_NOT_FOUND}:
                    described[found.transactional_id] = _described(found)
        return described

    def names(self, prefix: str, states: Iterable[State] = ()) -> list[str]:
        """
        Return the transactional ids that begin with a prefix, in these states if any are given.
        """
        wanted = [state.value for state in states]

        def ask(address: Address, deadline: Deadline) -> list[str]:
            connection = self.cluster.connection_at(address, deadline)
            request = list_transactions_request(connection.version(LIST_TRANSACTIONS), wanted)
            answer: TransactionsListed = self.cluster.request(connection, request, deadline)
            if answer.error_code:
                raise map_error_code(answer.error_code, "listing transactions")
            return answer.transactional_ids

        def everywhere(deadline: Deadline) -> set[str]:
            return {
                name
                for address in self.cluster.addresses(deadline)
                for name in ask(address, deadline)
                if name.startswith(prefix)
            }

        return sorted(self._coordinators.retrying(everywhere, "listing transactions"))


def _check_lookups(connection: Connection) -> None:
    # Here, where no record has been sent: at the end nobody could see what has become of them.
    missing = [it.name for it in _LOOKUPS if not connection.speaks(it)]
    if missing:
        msg = (
            f"exactly-once needs brokers that tell of their transactions, from Kafka 3.0 on "
            f"(KIP-664), and {connection.address} does not know {' and '.join(missing)}; upgrade "
            "the brokers, or set deliveryGuarantee to at-least-once"
        )
        raise KafkaClientError(msg, *UNSUPPORTED_VERSION, retriable=False)


def _beginning(name: str, timeout_ms: int) -> MakesRequest:
    def request(connection: Connection) -> Request:
        _check_lookups(connection)
        return init_producer_id_request(connection.version(INIT_PRODUCER_ID), name, timeout_ms)

    return request


def _ending(prepared: Prepared, *, commit: bool) -> MakesRequest:
    name, *identity = prepared
    return lambda connection: end_request(
        connection.version(END), name, Identity(*identity), commit=commit
    )


def _describing(names: list[str]) -> MakesRequest:
    def request(connection: Connection) -> Request:
        _check_lookups(connection)
        return describe_transactions_request(connection.version(DESCRIBE_TRANSACTIONS), names)

    return request


def _described(found: TransactionState) -> Described | None:
    if found.error_code:
        return None
    return Described(
        found.transactional_id,
        State(found.transaction_state),
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        found.transaction_start_time_ms,
        found.partitions,
    )


def _code_of_description(answer: TransactionsDescribed) -> int:
    if not answer.transaction_states:
        return _SAID_NOTHING
    code = answer.transaction_states[0].error_code
    return 0 if code == _ID_NOT_FOUND else code


def _own_code(answer: ProducerId | Ended) -> int:
    return answer.error_code


def _code_but_concurrent(answer: ProducerId) -> int:
    return 0 if answer.error_code == _CONCURRENT[0] else answer.error_code


def _worst_of_partitions(answer: PartitionsAdded) -> int:
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
