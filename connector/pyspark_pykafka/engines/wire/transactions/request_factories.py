"""
The requests for transactions, each in the newest version that a connection's broker supports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.engines.wire.protocol.api_versions import UNSUPPORTED_VERSION
from pyspark_pykafka.engines.wire.protocol.transaction_states import (
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
from pyspark_pykafka.errors import KafkaClientError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_pykafka.engines.transaction_contract import PreparedTransaction
    from pyspark_pykafka.engines.wire.network.connection import Connection
    from pyspark_pykafka.engines.wire.network.pipeline import RequestFactory
    from pyspark_pykafka.engines.wire.protocol.request import Request
    from pyspark_pykafka.engines.wire.protocol.transaction_states import (
        DescribeTransactionsResponse,
        ListTransactionsResponse,
    )
    from pyspark_pykafka.engines.wire.protocol.transactions import (
        AddPartitionsToTxnResponse,
        EndTxnResponse,
        InitProducerIdResponse,
    )
    from pyspark_pykafka.offsets import TopicPartition

_LOOKUPS = (DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS)


def init_producer_id(
    transactional_id: str, timeout_ms: int
) -> RequestFactory[InitProducerIdResponse]:
    """
    Return InitProducerId, which aborts an open transaction of the id and returns the next epoch.
    """

    def request(connection: Connection) -> Request[InitProducerIdResponse]:
        _check_lookups(connection)
        version = connection.version(INIT_PRODUCER_ID)
        return init_producer_id_request(version, transactional_id, timeout_ms)

    return request


def add_partitions(
    transactional_id: str, identity: ProducerIdAndEpoch, tps: Sequence[TopicPartition]
) -> RequestFactory[AddPartitionsToTxnResponse]:
    """
    Return AddPartitionsToTxn, which must succeed before records are sent to these partitions.
    """

    def request(connection: Connection) -> Request[AddPartitionsToTxnResponse]:
        version = connection.version(ADD_PARTITIONS_TO_TXN)
        return add_partitions_to_txn_request(version, transactional_id, identity, tps)

    return request


def end_txn(prepared: PreparedTransaction, *, commit: bool) -> RequestFactory[EndTxnResponse]:
    """
    Return EndTxn, which commits or aborts the transaction.
    """
    name, *identity = prepared
    return lambda connection: end_txn_request(
        connection.version(END_TXN), name, ProducerIdAndEpoch(*identity), commit=commit
    )


def list_transactions(states: Sequence[str]) -> RequestFactory[ListTransactionsResponse]:
    """
    Return ListTransactions for these states, or for all states if none are given.
    """

    def request(connection: Connection) -> Request[ListTransactionsResponse]:
        _check_lookups(connection)
        return list_transactions_request(connection.version(LIST_TRANSACTIONS), states)

    return request


def describe_transactions(
    transactional_ids: Sequence[str],
) -> RequestFactory[DescribeTransactionsResponse]:
    """
    Return DescribeTransactions, for ids that have the same coordinator.
    """

    def request(connection: Connection) -> Request[DescribeTransactionsResponse]:
        _check_lookups(connection)
        version = connection.version(DESCRIBE_TRANSACTIONS)
        return describe_transactions_request(version, transactional_ids)

    return request


def _check_lookups(connection: Connection) -> None:
    # Checked before any record is sent: without these requests, the outcome of a commit might stay
    # unknown.
    missing = [api.name for api in _LOOKUPS if not connection.supports(api)]
    if missing:
        msg = (
            "exactly-once needs brokers that list and describe their transactions: Kafka 3.0 or "
            f"newer (KIP-664); {connection.address} does not support {' and '.join(missing)}; "
            "upgrade the brokers, or set deliveryGuarantee to at-least-once"
        )
        raise KafkaClientError(msg, *UNSUPPORTED_VERSION, retriable=False)
