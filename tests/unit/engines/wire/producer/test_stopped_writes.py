"""
A transactional write that is stopped while a broker does not answer.
"""

from __future__ import annotations

import time

import pyarrow as pa
import pytest
from tests.support.producing import settings
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka.engines.transaction_contract import Transaction
from pyspark_pykafka.engines.wire.producer.producer import write_prepared

_PRODUCE = 0
TIMEOUT_MS = 60_000
MIB = 1 << 20


class HungLeader(Behaviour):
    """
    A leader that does not answer while records are written; as a coordinator it works.
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
        transaction = Transaction("w-0-0", TIMEOUT_MS, check_not_stopped=stop)
        start = time.monotonic()
        with pytest.raises(_StoppedError):
            write_prepared([batch], kafka, "out", transaction)

        assert stubs.get("transactions")["w-0-0"].state == "CompleteAbort"
    assert time.monotonic() - start < 20
