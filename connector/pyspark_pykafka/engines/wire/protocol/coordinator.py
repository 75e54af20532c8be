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
MANY_COORDINATORS = 4

_TRANSACTION = b"\x01"


class Coordinator(NamedTuple):
    """
    Who coordinates the transactions of a name, which only versions from 4 on say.
    """

    key: str | None
    host: str
    port: int
    error_code: int


class CoordinatorsFound(NamedTuple):
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


class TransactionsDescribed(NamedTuple):
    """
    Where all transactional ids that were asked for stand.
    """

    throttle_time_ms: int
    transaction_states: list[TransactionStateEntry]


class TransactionsListed(NamedTuple):
    """
    The transactional ids that one broker coordinates.
    """

    throttle_time_ms: int
    error_code: int
    transactional_ids: list[str]


# --- Requests -------------------------------------------------------------------------------------


def find_coordinators_request(version: int, names: Sequence[str]) -> Request:
    """
    Ask who coordinates transactions; before version 4 of a single name.
    """
    form = FIND_COORDINATORS.layout(version)
    if version >= MANY_COORDINATORS:
        body = _TRANSACTION + _texts(form, names) + form.tags
    else:
        (name,) = names
        body = form.string(name) + _TRANSACTION + form.tags
    return Request(FIND_COORDINATORS, version, body)


def describe_transactions_request(version: int, names: Sequence[str]) -> Request:
    """
    Ask a coordinator where transactional ids stand.
    """
    form = DESCRIBE_TRANSACTIONS.layout(version)
    return Request(DESCRIBE_TRANSACTIONS, version, _texts(form, names) + form.tags)


def list_transactions_request(version: int, states: Sequence[str]) -> Request:
    """
    Ask a broker for the transactional ids in these states, or for all if none are given.
    """
    form = LIST_TRANSACTIONS.layout(version)
    of_any_producer = form.count(0)
    body = _texts(form, states) + of_any_producer + form.tags
    return Request(LIST_TRANSACTIONS, version, body)


def _texts(form: Encoding, texts: Sequence[str]) -> bytes:
    return b"".join((form.count(len(texts)), *map(form.string, texts)))


# --- Answers --------------------------------------------------------------------------------------


def read_coordinators_found(body: memoryview, version: int) -> CoordinatorsFound:
    """
    Return what an answer says, in one form for all versions.
    """
    reader = Reader(body, version, _FLEXIBLE)
    throttle = reader.int32()
    if version >= MANY_COORDINATORS:
        found = [_keyed_coordinator(reader) for _ in range(reader.count())]
    else:
        found = [_coordinator(reader)]
    reader.skip_tags()
    return CoordinatorsFound(throttle, found)


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


def read_transactions_described(body: memoryview, version: int) -> TransactionsDescribed:
    """
    Return what an answer says.
    """
    reader = Reader(body, version, 0)
    throttle = reader.int32()
    states = [_state(reader) for _ in range(reader.count())]
    reader.skip_tags()
    return TransactionsDescribed(throttle, states)


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


def read_transactions_listed(body: memoryview, version: int) -> TransactionsListed:
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
    return TransactionsListed(throttle, error, names)


#: From the first on that can ask for others than the coordinators of groups.
FIND_COORDINATORS = ApiSpec.of(
    "FindCoordinator", 10, (1, MANY_COORDINATORS), _FLEXIBLE, read_coordinators_found
)
DESCRIBE_TRANSACTIONS = ApiSpec.of(
    "DescribeTransactions", 65, (0, 0), 0, read_transactions_described
)
LIST_TRANSACTIONS = ApiSpec.of("ListTransactions", 66, (0, 0), 0, read_transactions_listed)
