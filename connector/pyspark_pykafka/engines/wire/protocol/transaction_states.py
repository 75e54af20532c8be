"""
The requests DescribeTransactions and ListTransactions (KIP-664), and their responses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.wire.protocol.primitives import INT32, INT64, Encoding, Reader
from pyspark_pykafka.engines.wire.protocol.request import ApiSpec, Request

if TYPE_CHECKING:
    from collections.abc import Sequence


class TransactionStateEntry(NamedTuple):
    """
    The state of a transactional id; ``partitions`` is the number of partitions in the transaction.
    """

    error_code: int
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    producer_id: int
    producer_epoch: int
    partitions: int


class DescribeTransactionsResponse(NamedTuple):
    """
    The states of all requested transactional ids.
    """

    throttle_time_ms: int
    transaction_states: list[TransactionStateEntry]


class ListTransactionsResponse(NamedTuple):
    """
    The transactional ids that one broker coordinates.
    """

    throttle_time_ms: int
    error_code: int
    transactional_ids: list[str]


# --- Requests -------------------------------------------------------------------------------------


def describe_transactions_request(
    version: int, transactional_ids: Sequence[str]
) -> Request[DescribeTransactionsResponse]:
    """
    Return a DescribeTransactions request, which goes to the coordinator of the ids.
    """
    encoding = DESCRIBE_TRANSACTIONS.encoding(version)
    return Request(
        DESCRIBE_TRANSACTIONS, version, _string_array(encoding, transactional_ids) + encoding.tags
    )


def list_transactions_request(
    version: int, states: Sequence[str]
) -> Request[ListTransactionsResponse]:
    """
    Return a ListTransactions request for the ids in ``states``, or in any state.
    """
    encoding = LIST_TRANSACTIONS.encoding(version)
    any_producer = encoding.count(0)
    body = _string_array(encoding, states) + any_producer + encoding.tags
    return Request(LIST_TRANSACTIONS, version, body)


def _string_array(encoding: Encoding, strings: Sequence[str]) -> bytes:
    return b"".join((encoding.count(len(strings)), *map(encoding.string, strings)))


# --- Responses ------------------------------------------------------------------------------------


def read_describe_transactions_response(
    body: memoryview, version: int
) -> DescribeTransactionsResponse:
    """
    Return a decoded response.
    """
    reader = Reader(body, version, 0)
    throttle = reader.int32()
    states = [_state(reader) for _ in range(reader.count())]
    reader.skip_tags()
    return DescribeTransactionsResponse(throttle, states)


def _state(reader: Reader) -> TransactionStateEntry:
    error, transactional_id, state = reader.int16(), reader.string() or "", reader.string() or ""
    numbers = (reader.int32(), reader.int64(), reader.int64(), reader.int16())
    partitions = 0
    for _ in range(reader.count()):
        reader.skip_string()
        count = max(reader.count(), 0)
        reader.skip(count * INT32.size)
        reader.skip_tags()
        partitions += count
    reader.skip_tags()
    return TransactionStateEntry(error, transactional_id, state, *numbers, partitions)


def read_list_transactions_response(body: memoryview, version: int) -> ListTransactionsResponse:
    """
    Return a decoded response.
    """
    reader = Reader(body, version, 0)
    throttle, error, transactional_ids = reader.int32(), reader.int16(), []
    for _ in range(reader.count()):
        # The states of the request that the broker does not know; we ignore them.
        reader.skip_string()
    for _ in range(reader.count()):
        transactional_ids.append(reader.string() or "")
        reader.skip(INT64.size)
        reader.skip_string()
        reader.skip_tags()
    reader.skip_tags()
    return ListTransactionsResponse(throttle, error, transactional_ids)


DESCRIBE_TRANSACTIONS = ApiSpec(
    "DescribeTransactions", 65, (0, 0), 0, read_describe_transactions_response
)
LIST_TRANSACTIONS = ApiSpec("ListTransactions", 66, (0, 0), 0, read_list_transactions_response)
