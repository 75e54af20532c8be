"""
The coordinator of transactional ids, with the states of Kafka's transactions (versions 1 and 2).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.simulation.kafka.codes import Code
from tests.simulation.kafka.coordinator import Coordinator
from tests.simulation.kafka.transaction_markers import write_marker
from tests.simulation.kafka.transaction_state import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    LAST_EPOCH,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    TransactionState,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.simulation.kafka.image import Partition, Shard
    from tests.simulation.kafka.node import Node


class TransactionCoordinator(Coordinator):
    """
    ``states`` holds the replicated states; an id whose next state is being written is pending.
    """

    def __init__(self, node: Node, shard: Shard, epoch: int) -> None:
        self.states: dict[str, TransactionState] = {}
        self._pending: set[str] = set()
        super().__init__(node, shard, epoch)

    def load(self, values: dict[Any, Any]) -> None:
        self.states = values
        for state in values.values():
            if state.state in PREPARED:
                self._send_markers(state)
            elif state.state == ONGOING:
                self._watch(state)

    # --- Requests -------------------------------------------------------------------------------

    def initialise(
        self,
        name: str,
        timeout_ms: int,
        expected: tuple[int, int],
        respond: Callable[[Code, int, int], None],
    ) -> None:
        """
        Handle InitProducerId: a new epoch, after the end of an open transaction.
        """

        def done(code: Code, state: TransactionState) -> None:
            if code:
                respond(code, -1, -1)
            else:
                respond(code, state.producer_id, state.epoch)

        current = self.states.get(name)
        if not 0 < timeout_ms <= self.node.world.settings.max_transaction_timeout_ms:
            respond(Code.INVALID_TRANSACTION_TIMEOUT, -1, -1)
        elif name in self._pending:
            respond(Code.CONCURRENT_TRANSACTIONS, -1, -1)
        elif current is None:
            producer_id = self.node.world.new_producer_id()
            self._write(TransactionState(name, producer_id, 0, timeout_ms), done)
        elif expected[0] >= 0 and expected != (current.producer_id, current.epoch):
            respond(Code.PRODUCER_FENCED, -1, -1)
        elif current.state in PREPARED:
            respond(Code.CONCURRENT_TRANSACTIONS, -1, -1)
        elif current.state == ONGOING:
            self._abort(current, lambda code: respond(code or Code.CONCURRENT_TRANSACTIONS, -1, -1))
        else:
            self._write(self._next_epoch(current, timeout_ms), done)

    def _next_epoch(self, state: TransactionState, timeout_ms: int) -> TransactionState:
        producer_id, epoch = state.producer_id, state.epoch + 1
        if state.epoch >= LAST_EPOCH:
            producer_id, epoch = self.node.world.new_producer_id(), 0
        return TransactionState(state.transactional_id, producer_id, epoch, timeout_ms)

    def add_partitions(
        self,
        name: str,
        identity: tuple[int, int],
        partitions: Iterable[Partition],
        respond: Callable[[Code], None],
    ) -> None:
        """
        Handle AddPartitionsToTxn, which begins a transaction.
        """
        code = self._refusal(name, identity)
        if code:
            respond(code)
            return
        current = self.states[name]
        if current.state in PREPARED:
            respond(Code.CONCURRENT_TRANSACTIONS)
            return
        added = frozenset(partitions)
        if current.state == ONGOING and added <= current.partitions:
            respond(Code.NONE)
            return
        begins = current.state != ONGOING
        ongoing = replace(
            current,
            state=ONGOING,
            partitions=added if begins else current.partitions | added,
            started_ms=self.node.world.now_ms() if begins else current.started_ms,
        )

        def done(code: Code, state: TransactionState) -> None:
            if begins and not code:
                self._watch(state)
            respond(code)

        self._write(ongoing, done)

    def verify(self, name: str, identity: tuple[int, int], partition: Partition) -> Code:
        """
        Return whether a partition is in an open transaction (KIP-890).
        """
        code = self._refusal(name, identity)
        if code:
            return code
        state = self.states[name]
        if state.state in PREPARED:
            return Code.CONCURRENT_TRANSACTIONS
        if state.state != ONGOING or partition not in state.partitions:
            return Code.TRANSACTION_ABORTABLE
        return Code.NONE

    def end(
        self,
        name: str,
        identity: tuple[int, int],
        respond: Callable[[Code], None],
        *,
        commit: bool,
    ) -> None:
        """
        Handle EndTxn: the outcome is decided once it is replicated; markers are written later.
        """
        code = self._refusal(name, identity)
        if code:
            respond(code)
            return
        state = self.states[name]
        if state.state == ONGOING:
            self._prepare(state.prepared(commit=commit), respond)
        elif state.state in PREPARED:
            same = commit == (state.state == PREPARE_COMMIT)
            respond(Code.CONCURRENT_TRANSACTIONS if same else Code.INVALID_TXN_STATE)
        else:
            done = COMPLETE_COMMIT if commit else COMPLETE_ABORT
            respond(Code.NONE if state.state == done else Code.INVALID_TXN_STATE)

    def end_and_bump(
        self,
        name: str,
        identity: tuple[int, int],
        respond: Callable[[Code, int, int], None],
        *,
        commit: bool,
    ) -> None:
        """
        Handle EndTxn of version 5, which also bumps the epoch. A repeated request still has the
        previous epoch.
        """
        state = self.states.get(name)
        is_repeated = state is not None and identity == (state.producer_id, state.last_epoch)
        code = Code.NONE if is_repeated else self._refusal(name, identity)
        if code or state is None:
            respond(code, -1, -1)
        elif name in self._pending:
            respond(Code.CONCURRENT_TRANSACTIONS, -1, -1)
        elif is_repeated or state.state in PREPARED:
            respond(*self._repeated_end(state, commit=commit))
        elif state.state == ONGOING or not commit:
            # Without a transaction, an abort bumps the epoch all the same.
            next_state = state.with_next_epoch()
            self._prepare(
                next_state.prepared(commit=commit),
                lambda code: respond(code, next_state.producer_id, next_state.epoch),
            )
        else:
            respond(Code.INVALID_TXN_STATE, -1, -1)

    @staticmethod
    def _repeated_end(state: TransactionState, *, commit: bool) -> tuple[Code, int, int]:
        states = (PREPARE_COMMIT, COMPLETE_COMMIT) if commit else (PREPARE_ABORT, COMPLETE_ABORT)
        if state.state not in states:
            return Code.INVALID_TXN_STATE, -1, -1
        if state.state in PREPARED:
            return Code.CONCURRENT_TRANSACTIONS, -1, -1
        return Code.NONE, state.producer_id, state.epoch

    def _refusal(self, name: str, identity: tuple[int, int]) -> Code:
        state = self.states.get(name)
        if state is None or state.producer_id != identity[0]:
            return Code.INVALID_PRODUCER_ID_MAPPING
        if state.epoch != identity[1]:
            return Code.PRODUCER_FENCED
        return Code.CONCURRENT_TRANSACTIONS if name in self._pending else Code.NONE

    def expire(self, name: str) -> None:
        """
        Forget an id, as a coordinator does after ``transactional.id.expiration.ms``.

        Raises :class:`ValueError` if the id has an open transaction.
        """
        if self.states[name].state not in {EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}:
            msg = f"{name} has an open transaction: {self.states[name]}"
            raise ValueError(msg)
        self.write({name: None}, lambda code: None if code else self._forget(name))

    def time_out(self, name: str, done: Callable[[], None]) -> None:
        """
        Abort the transaction of an id if it is open; call ``done`` when the abort is replicated,
        before the markers are written.
        """
        state = self.states.get(name)
        if state is not None and state.state == ONGOING and name not in self._pending:
            self._abort(state, lambda _: done())

    def _forget(self, name: str) -> None:
        self.states.pop(name, None)

    # --- Steps ----------------------------------------------------------------------------------

    def _write(
        self, state: TransactionState, done: Callable[[Code, TransactionState], None]
    ) -> None:
        name = state.transactional_id
        self._pending.add(name)

        def written(code: Code) -> None:
            self._pending.discard(name)
            if not code:
                self.states[name] = state
            done(code, state)

        self.write({name: state}, written)

    def _abort(self, state: TransactionState, respond: Callable[[Code], None]) -> None:
        self._prepare(state.fenced().prepared(commit=False), respond)

    def _prepare(self, state: TransactionState, respond: Callable[[Code], None]) -> None:
        def done(code: Code, state: TransactionState) -> None:
            if not code:
                self._send_markers(state)
            respond(code)

        self._write(state, done)

    def _send_markers(self, state: TransactionState) -> None:
        remaining = set(state.partitions)

        def written(partition: Partition) -> None:
            remaining.discard(partition)
            if not remaining:
                self._complete(state)

        for partition in sorted(remaining):
            write_marker(self, state, partition, written)
        if not remaining:
            self._complete(state)

    def _complete(self, state: TransactionState) -> None:
        def done(code: Code, _: TransactionState) -> None:
            if code and self.active:
                self.later(1.0, lambda: self._complete(state))

        if self.active and self.states.get(state.transactional_id) == state:
            self._write(state.completed(), done)

    def _watch(self, state: TransactionState) -> None:
        """
        Abort the transaction once it has timed out.
        """
        world = self.node.world
        remaining = (state.started_ms + state.timeout_ms - world.now_ms()) / 1000
        check = world.random.uniform(0, world.settings.abort_timed_out_seconds)

        def expire() -> None:
            current = self.states.get(state.transactional_id)
            same = current is not None and (
                (current.state, current.epoch, current.started_ms)
                == (ONGOING, state.epoch, state.started_ms)
            )
            if not same or current is None:
                return
            if state.transactional_id in self._pending:
                self.later(world.settings.abort_timed_out_seconds, expire)
            else:
                self._abort(current, lambda code: self._watch(state) if code else None)

        self.later(max(remaining, 0.0) + check, expire)
