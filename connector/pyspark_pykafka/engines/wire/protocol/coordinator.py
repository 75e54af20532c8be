"""
The requests that find coordinators and read transaction states, and their responses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.wire.protocol.primitives import INT32, INT64, Encoding, Reader
from pyspark_pykafka.engines.wire.protocol.request import ApiSpec, Request

if TYPE_CHECKING:
    from collections.abc import Sequence

# The first flexible version (Kafka's FindCoordinatorRequest.json).
_FLEXIBLE = 3
#: The first version that takes several keys (Kafka's ``MIN_BATCHED_VERSION``).
MIN_BATCHED_VERSION = 4

#: The types of keys: consumer groups and transactional ids (Kafka's ``CoordinatorType``).
GROUP, TRANSACTION = b"\x00", b"\x01"


class Coordinator(NamedTuple):
    """
    The coordinator of a group or transactional id; ``key`` is the id, None before version 4.
    """

    key: str | None
    host: str
    port: int
    error_code: int


class FindCoordinatorResponse(NamedTuple):
    """
    The coordinators of all requested keys.
    """

    throttle_time_ms: int
    coordinators: list[Coordinator]


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


def find_coordinator_request(
    version: int, key_type: bytes, keys: Sequence[str]
) -> Request[FindCoordinatorResponse]:
    """
    Return a FindCoordinator request for keys of a type; before version 4 for a single key.
    """
    encoding = FIND_COORDINATOR.encoding(version)
    if version >= MIN_BATCHED_VERSION:
        body = key_type + _string_array(encoding, keys) + encoding.tags
    else:
        (key,) = keys
        body = encoding.string(key) + key_type + encoding.tags
    return Request(FIND_COORDINATOR, version, body)


def describe_transactions_request(
    version: int, transactional_ids: Sequence[str]
) -> Request[DescribeTransactionsResponse]:
    """
    Return a DescribeTransactions request, which goes to the coordinator of the ids (KIP-664).
    """
    encoding = DESCRIBE_TRANSACTIONS.encoding(version)
    return Request(
        DESCRIBE_TRANSACTIONS, version, _string_array(encoding, transactional_ids) + encoding.tags
    )


def list_transactions_request(
    version: int, states: Sequence[str]
) -> Request[ListTransactionsResponse]:
    """
    Return a ListTransactions request for the ids in ``states``, or in any state (KIP-664).
    """
    encoding = LIST_TRANSACTIONS.encoding(version)
    any_producer = encoding.count(0)
    body = _string_array(encoding, states) + any_producer + encoding.tags
    return Request(LIST_TRANSACTIONS, version, body)


def _string_array(encoding: Encoding, strings: Sequence[str]) -> bytes:
    return b"".join((encoding.count(len(strings)), *map(encoding.string, strings)))


# --- Responses ------------------------------------------------------------------------------------


def read_find_coordinator_response(body: memoryview, version: int) -> FindCoordinatorResponse:
    """
    Return a decoded response, in the same form for all versions.
    """
    reader = Reader(body, version, _FLEXIBLE)
    throttle = reader.int32()
    if version >= MIN_BATCHED_VERSION:
        coordinators = [_keyed_coordinator(reader) for _ in range(reader.count())]
    else:
        coordinators = [_coordinator(reader)]
    reader.skip_tags()
    return FindCoordinatorResponse(throttle, coordinators)


def _keyed_coordinator(reader: Reader) -> Coordinator:
    key, _node, host, port = reader.string(), reader.int32(), reader.string(), reader.int32()
    error = reader.int16()
    reader.skip_string()
    reader.skip_tags()
    return Coordinator(key, host or "", port, error)


def _coordinator(reader: Reader) -> Coordinator:
    error = reader.int16()
    reader.skip_string()
    reader.skip(INT32.size)
    return Coordinator(None, reader.string() or "", reader.int32(), error)


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


#: From the first version that has key types: version 0 finds the coordinators of groups only.
FIND_COORDINATOR = ApiSpec(
    "FindCoordinator", 10, (1, MIN_BATCHED_VERSION), _FLEXIBLE, read_find_coordinator_response
)
DESCRIBE_TRANSACTIONS = ApiSpec(
    "DescribeTransactions", 65, (0, 0), 0, read_describe_transactions_response
)
LIST_TRANSACTIONS = ApiSpec("ListTransactions", 66, (0, 0), 0, read_list_transactions_response)
