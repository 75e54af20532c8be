"""
A transactional write that is stopped while a broker does not answer, or after its last row.
"""

from __future__ import annotations

import time

import pyarrow as pa
import pytest
from tests.support.producing import settings
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka.engines.transaction_contract import TransactionSpec
from pyspark_pykafka.engines.wire.producer.producer import write_in_transaction
from pyspark_pykafka.engines.wire.producer.sender import Sender

_PRODUCE = 0
TIMEOUT_MS = 60_000
MIB = 1 << 20


class HungLeader(Behaviour):
    """
    A leader that does not answer Produce requests, but answers as a coordinator.
    """

    def delay(self, node: int, api_key: int) -> float:  # noqa: ARG002
        return 60.0 if api_key == _PRODUCE else 0.0


class _StoppedError(Exception):
    pass


def stop() -> None:
    """
    Stop the write at the first check.
    """
    raise _StoppedError


@pytest.mark.parametrize(
    ("rows", "buffer_bytes"),
    [(1, 32 * MIB), (8, MIB)],
    ids=["the last acknowledgements", "room in the buffer"],
)
def test_a_stopped_write_is_aborted_at_once(rows: int, buffer_bytes: int) -> None:
    """
    A write that waits for acknowledgements, or for room in the buffer, ends and aborts its
    transaction once it is stopped, and not only after kafka.delivery.timeout.ms.
    """
    batch = pa.RecordBatch.from_pydict({"value": [bytes(MIB // 2)] * rows})
    with StubCluster(HungLeader(topics={"out": 1}, logs={("out", 0): []})) as stubs:
        kafka = settings(stubs.bootstrap, buffer_memory=buffer_bytes, compression_type="none")
        transaction = TransactionSpec("w-0-0", TIMEOUT_MS, check_not_stopped=stop)
        start = time.monotonic()
        with pytest.raises(_StoppedError):
            write_in_transaction([batch], kafka, "out", transaction)

        assert stubs.get("transactions")["w-0-0"].state == "CompleteAbort"
    assert time.monotonic() - start < 20


def test_a_write_that_is_stopped_at_its_end_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A task that is stopped once all rows are acknowledged aborts its transaction: nobody receives
    its commit message.
    """
    flush, is_stopped = Sender.flush, False

    def flush_and_stop(sender: Sender) -> None:
        nonlocal is_stopped
        flush(sender)
        is_stopped = True

    def check() -> None:
        if is_stopped:
            stop()

    monkeypatch.setattr(Sender, "flush", flush_and_stop)
    batch = pa.RecordBatch.from_pydict({"value": [b"x"]})
    with StubCluster(Behaviour(topics={"out": 1}, logs={("out", 0): []})) as stubs:
        transaction = TransactionSpec("w-0-0", TIMEOUT_MS, check_not_stopped=check)
        with pytest.raises(_StoppedError):
            write_in_transaction([batch], settings(stubs.bootstrap), "out", transaction)

        assert stubs.get("logs")["out", 0]
        assert stubs.get("transactions")["w-0-0"].state == "CompleteAbort"
