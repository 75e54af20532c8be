"""
The errors of transactions, made from Kafka's error codes.
"""

from __future__ import annotations

from pyspark_pykafka.engines.error_codes import KafkaErrorCode
from pyspark_pykafka.engines.error_mapping import map_error_code
from pyspark_pykafka.errors import KafkaClientError, PykafkaError

# The transaction has ended without its producer.
_FENCED = frozenset(
    {
        KafkaErrorCode.INVALID_PRODUCER_EPOCH,
        KafkaErrorCode.INVALID_TXN_STATE,
        KafkaErrorCode.INVALID_PRODUCER_ID_MAPPING,
        KafkaErrorCode.PRODUCER_FENCED,
    }
)
_CONCURRENT = (KafkaErrorCode.CONCURRENT_TRANSACTIONS.value, "CONCURRENT_TRANSACTIONS")


class FencedError(KafkaClientError):
    """
    The transaction was aborted or timed out, or another producer took over its transactional id.
    """

    def __init__(self, message: str, code: int = KafkaErrorCode.PRODUCER_FENCED.value) -> None:
        super().__init__(message, code, "PRODUCER_FENCED", retriable=False)


def transaction_error(code: int, action: str, transactional_id: str = "") -> PykafkaError:
    """
    Return the error for one of Kafka's codes. ``action`` names the action that failed, such as
    "committing orders-0".
    """
    is_denied = code == KafkaErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    permission = f"Write, which includes Describe, on the transactional id {transactional_id}"
    error = map_error_code(code, action, permission if is_denied else "")
    if code in _FENCED:
        msg = f"{error}: the transaction was ended, timed out, or its id was taken over"
        return FencedError(msg, code)
    if code == KafkaErrorCode.INVALID_TRANSACTION_TIMEOUT:
        msg = (
            f"{error}: kafka.transaction.timeout.ms exceeds the brokers' limit; lower it, or raise "
            "transaction.max.timeout.ms on the brokers"
        )
        return KafkaClientError(msg, code, "INVALID_TRANSACTION_TIMEOUT", retriable=False)
    return error


def concurrent_transactions_error(message: str) -> KafkaClientError:
    """
    Return the retriable error for a transaction that its coordinator is still ending.
    """
    return KafkaClientError(message, *_CONCURRENT, retriable=True)


def is_concurrent(error: PykafkaError) -> bool:
    """
    Return whether an error is CONCURRENT_TRANSACTIONS: the coordinator is ending a transaction.
    """
    return isinstance(error, KafkaClientError) and error.code == _CONCURRENT[0]
