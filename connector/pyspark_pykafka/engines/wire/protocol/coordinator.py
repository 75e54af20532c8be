"""
Who coordinates transactions, which there are, and where they stand: the requests, and the answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.wire.protocol.primitives import INT32, INT64, Encoding, Reader
from pyspark_pykafka.engines.wire.protocol.request import ApiSpec, Request

if TYPE_CHECKING:
    from collections.abc import Sequence

# The first flexible version (Kafka's FindCoordinatorRequest.json).
_FLEXIBLE = 3
#: The first version that asks for many names at once.
MIN_BATCHED_VERSION = 4

_TRANSACTION = b"\x01"


class Coordinator(NamedTuple):
    """
    Who coordinates the transactions of a name, which only versions from 4 on say.
    """

    key: str | None
    host: str
    port: int
    error_code: int


class FindCoordinatorResponse(NamedTuple):
    """
    The coordinators of all names that were asked for.
    """

    throttle_time_ms: int
    coordinators: list[Coordinator]


class TransactionStateEntry(NamedTuple):
    """
    Where a transactional id stands; times are milliseconds, ``partitions`` is how many it has.
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
    Where all transactional ids that were asked for stand.
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
    version: int, names: Sequence[str]
) -> Request[FindCoordinatorResponse]:
    """
    Ask who coordinates transactions; before version 4 of a single name.
    """
    encoding = FIND_COORDINATOR.encoding(version)
    if version >= MIN_BATCHED_VERSION:
        body = _TRANSACTION + _texts(encoding, names) + encoding.tags
    else:
        (name,) = names
        body = encoding.string(name) + _TRANSACTION + encoding.tags
    return Request(FIND_COORDINATOR, version, body)


def describe_transactions_request(
    version: int, names: Sequence[str]
) -> Request[DescribeTransactionsResponse]:
    """
    Ask a coordinator where transactional ids stand.
    """
    encoding = DESCRIBE_TRANSACTIONS.encoding(version)
    return Request(DESCRIBE_TRANSACTIONS, version, _texts(encoding, names) + encoding.tags)


def list_transactions_request(
    version: int, states: Sequence[str]
) -> Request[ListTransactionsResponse]:
    """
    Ask a broker for the transactional ids in these states, or for all if none are given.
    """
    encoding = LIST_TRANSACTIONS.encoding(version)
    of_any_producer = encoding.count(0)
    body = _texts(encoding, states) + of_any_producer + encoding.tags
    return Request(LIST_TRANSACTIONS, version, body)


def _texts(encoding: Encoding, texts: Sequence[str]) -> bytes:
    return b"".join((encoding.count(len(texts)), *map(encoding.string, texts)))


# --- Answers --------------------------------------------------------------------------------------


def read_find_coordinator_response(body: memoryview, version: int) -> FindCoordinatorResponse:
    """
    Return what an answer says, in one form for all versions.
    """
    reader = Reader(body, version, _FLEXIBLE)
    throttle = reader.int32()
    if version >= MIN_BATCHED_VERSION:
        found = [_keyed_coordinator(reader) for _ in range(reader.count())]
    else:
        found = [_coordinator(reader)]
    reader.skip_tags()
    return FindCoordinatorResponse(throttle, found)


def _keyed_coordinator(reader: Reader) -> Coordinator:
    key, _node, host, port = reader.text(), reader.int32(), reader.text(), reader.int32()
    error = reader.int16()
    reader.skip_text()
    reader.skip_tags()
    return Coordinator(key, host or "", port, error)


def _coordinator(reader: Reader) -> Coordinator:
    error = reader.int16()
    reader.skip_text()
    reader.skip(INT32.size)
    return Coordinator(None, reader.text() or "", reader.int32(), error)


def read_describe_transactions_response(
    body: memoryview, version: int
) -> DescribeTransactionsResponse:
    """
    Return what an answer says.
    """
    reader = Reader(body, version, 0)
    throttle = reader.int32()
    states = [_state(reader) for _ in range(reader.count())]
    reader.skip_tags()
    return DescribeTransactionsResponse(throttle, states)


def _state(reader: Reader) -> TransactionStateEntry:
    error, name, state = reader.int16(), reader.text() or "", reader.text() or ""
    numbers = (reader.int32(), reader.int64(), reader.int64(), reader.int16())
    partitions = 0
    for _ in range(reader.count()):
        reader.skip_text()
        count = max(reader.count(), 0)
        reader.skip(count * INT32.size)
        reader.skip_tags()
        partitions += count
    reader.skip_tags()
    return TransactionStateEntry(error, name, state, *numbers, partitions)


def read_list_transactions_response(body: memoryview, version: int) -> ListTransactionsResponse:
    """
    Return what an answer says.
    """
    reader = Reader(body, version, 0)
    throttle, error, names = reader.int32(), reader.int16(), []
    for _ in range(reader.count()):
        # State filters that the broker does not know.
        reader.skip_text()
    for _ in range(reader.count()):
        names.append(reader.text() or "")
        reader.skip(INT64.size)
        reader.skip_text()
        reader.skip_tags()
    reader.skip_tags()
    return ListTransactionsResponse(throttle, error, names)


#: From the first on that can ask for others than the coordinators of groups.
FIND_COORDINATOR = ApiSpec.of(
    "FindCoordinator", 10, (1, MIN_BATCHED_VERSION), _FLEXIBLE, read_find_coordinator_response
)
DESCRIBE_TRANSACTIONS = ApiSpec.of(
    "DescribeTransactions", 65, (0, 0), 0, read_describe_transactions_response
)
LIST_TRANSACTIONS = ApiSpec.of("ListTransactions", 66, (0, 0), 0, read_list_transactions_response)
