"""
Writes the numbered records with a plain transactional producer; every fifth transaction is aborted.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer

from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.verify.checker import ABORTED, COMMITTED, UNKNOWN
from pyspark_pykafka.verify.records import WrittenRecords, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TRANSACTION_SECONDS = 0.2
ABORTED_EVERY = 5
ENDING_SECONDS = 120.0

_REQUEST_SECONDS = 10.0
_QUEUE_SECONDS = 0.1
#: The client's delivery timeout, shorter than the brokers' transaction timeout.
_TIMEOUTS = {"transaction.timeout.ms": 60_000, "delivery.timeout.ms": 30_000}

Batch = dict[int, list[tuple[int, bytes]]]


class Writer:
    """
    A thread that writes transactions at a rate until it is stopped.

    ``written`` holds each record with the outcome of its transaction.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        run: str,
        topic: str,
        partitions: int,
        rate: float,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.written = WrittenRecords(topic, partitions)
        self.error: Exception | None = None
        self._config = {
            **{name: value for name, value in config.items() if name != "message.timeout.ms"},
            **_TIMEOUTS,
            "transactional.id": f"{topic}-writer",
            # Broken connections are expected and need no log; errors are raised as exceptions.
            "log_level": 0,
        }
        self._now = now
        self._run_id = run
        self._size = max(1, round(rate * TRANSACTION_SECONDS))
        self._interval = self._size / rate
        self._next = [0] * partitions
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pykafka-verify-writer")
        self._producer: Producer | None = None

    def start(self) -> None:
        """
        Start the thread.
        """
        self._thread.start()

    def stop(self) -> None:
        """
        Stop after the current transaction.
        """
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            due, transactions = self._now(), 0
            while not self._stopping.is_set():
                transactions += 1
                self._write(is_aborted=transactions % ABORTED_EVERY == 0)
                # Transactions missed during an outage are not made up afterwards.
                due = max(due + self._interval, self._now() - self._interval)
                self._stopping.wait(max(0.0, due - self._now()))
        except Exception as error:  # noqa: BLE001 (the run raises it)
            self.error = error

    def _write(self, *, is_aborted: bool) -> None:
        """
        Write one transaction and record its outcome.
        """
        producer = self._connected_producer()
        batch = self._next_batch()
        state = UNKNOWN
        try:
            producer.begin_transaction()
            self._produce(producer, batch)
            state = self._end(producer, is_aborted=is_aborted)
        except KafkaException as error:
            state = self._give_up(producer, error, state)
        finally:
            for partition, records in batch.items():
                self.written.add(partition, records, state)

    def _connected_producer(self) -> Producer:
        if self._producer is None:
            producer = Producer(self._config)
            _retry(lambda: producer.init_transactions(_REQUEST_SECONDS))
            self._producer = producer
        return self._producer

    def _next_batch(self) -> Batch:
        batch: Batch = {}
        for _ in range(self._size):
            partition = min(range(len(self._next)), key=self._next.__getitem__)
            number = self._next[partition]
            self._next[partition] += 1
            value = encode(self._run_id, partition, number)
            batch.setdefault(partition, []).append((number, value))
        return batch

    def _produce(self, producer: Producer, batch: Batch) -> None:
        for partition, records in batch.items():
            for _, value in records:
                while True:
                    try:
                        producer.produce(self.written.topic, value, partition=partition)
                    except BufferError:
                        producer.poll(_QUEUE_SECONDS)
                    else:
                        break

    def _end(self, producer: Producer, *, is_aborted: bool) -> str:
        if is_aborted:
            # The records must be in the log: only then could a faulty reader return them.
            producer.flush(_REQUEST_SECONDS)
            _retry(lambda: producer.abort_transaction(_REQUEST_SECONDS))
            return ABORTED
        _retry(lambda: producer.commit_transaction(_REQUEST_SECONDS))
        return COMMITTED

    def _give_up(self, producer: Producer, error: KafkaException, state: str) -> str:
        """
        Abort after an error, and return the outcome of the transaction. A producer in a fatal state
        is dropped; the next producer fences it.
        """
        if error.args[0].txn_requires_abort():
            try:
                _retry(lambda: producer.abort_transaction(_REQUEST_SECONDS))
            except KafkaException:
                # The next producer of this id aborts it.
                self._producer = None
            return ABORTED
        if not error.args[0].fatal() and not error.args[0].retriable():
            raise error
        self._producer = None
        return state


def _retry(call: Callable[[], None]) -> None:
    """
    Repeat a call while its error is retriable, until a deadline.
    """
    deadline = Deadline.after(ENDING_SECONDS)
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable() or deadline.expired:
                raise
        else:
            return
