"""
The requests of transactional producers, and the admin requests on transactions.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.simulation.kafka.codes import Code, RequestError
from tests.simulation.kafka.coordinator import coordinator_of
from tests.simulation.kafka.image import TRANSACTIONS, Partition
from tests.simulation.kafka.transaction_coordinator import TransactionCoordinator
from tests.simulation.kafka.transaction_state import STATES

if TYPE_CHECKING:
    from tests.simulation.kafka.call import Call
    from tests.simulation.kafka.transaction_state import TransactionState

_Added = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
#: From this version on, EndTxn bumps the epoch (KIP-890).
_BUMPS_EPOCH = 5
_Described = DescribeTransactionsResponse.TransactionState


def _coordinator(call: Call, name: str) -> TransactionCoordinator:
    if not name:
        raise RequestError(Code.INVALID_REQUEST)
    coordinator = coordinator_of(call.node, TRANSACTIONS, name)
    assert isinstance(coordinator, TransactionCoordinator)
    return coordinator


def _for_version(code: Code, version: int, first: int) -> Code:
    """
    Return the error code for a version of the request: before version ``first`` (KIP-588), clients
    get INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED.
    """
    fenced = code == Code.PRODUCER_FENCED and version < first
    return Code.INVALID_PRODUCER_EPOCH if fenced else code


def init_producer_id(call: Call) -> None:
    request = call.request

    def respond(code: Code, producer_id: int, epoch: int) -> None:
        call.respond(
            InitProducerIdResponse(
                throttle_time_ms=0,
                error_code=_for_version(code, call.version, 4),
                producer_id=producer_id,
                producer_epoch=epoch,
            )
        )

    if request.transactional_id is None:
        respond(Code.NONE, call.node.world.new_producer_id(), 0)
        return
    expected = (request.producer_id, request.producer_epoch)
    try:
        coordinator = _coordinator(call, request.transactional_id)
    except RequestError as error:
        respond(error.code, -1, -1)
        return
    timeout_ms = request.transaction_timeout_ms
    coordinator.initialise(request.transactional_id, timeout_ms, expected, respond)


def add_partitions(call: Call) -> None:
    request = call.request
    partitions = [
        Partition(topic.name, number)
        for topic in request.v3_and_below_topics
        for number in topic.partitions
    ]
    missing = {p for p in partitions if call.node.known.find(p) is None}

    def respond(code: Code) -> None:
        errors = dict.fromkeys(partitions, _for_version(code, call.version, 2))
        if missing:
            errors = {
                p: Code.UNKNOWN_TOPIC_OR_PARTITION if p in missing else Code.OPERATION_NOT_ATTEMPTED
                for p in partitions
            }
        call.respond(_added(request.v3_and_below_topics, errors))

    name = request.v3_and_below_transactional_id
    identity = (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    if missing:
        respond(Code.NONE)
        return
    try:
        _coordinator(call, name).add_partitions(name, identity, partitions, respond)
    except RequestError as error:
        respond(error.code)


def _added(topics: Any, errors: dict[Partition, Code]) -> Any:
    kind = _Added.AddPartitionsToTxnPartitionResult
    return AddPartitionsToTxnResponse(
        throttle_time_ms=0,
        results_by_topic_v3_and_below=[
            _Added(
                name=topic.name,
                results_by_partition=[
                    kind(
                        partition_index=number,
                        partition_error_code=errors[Partition(topic.name, number)],
                    )
                    for number in topic.partitions
                ],
            )
            for topic in topics
        ],
    )


def end_txn(call: Call) -> None:
    request = call.request

    def respond(code: Code, producer_id: int = -1, epoch: int = -1) -> None:
        call.respond(
            EndTxnResponse(
                throttle_time_ms=0,
                error_code=_for_version(code, call.version, 2),
                producer_id=producer_id,
                producer_epoch=epoch,
            )
        )

    name, identity = request.transactional_id, (request.producer_id, request.producer_epoch)
    try:
        coordinator = _coordinator(call, name)
    except RequestError as error:
        respond(error.code)
        return
    if call.version >= _BUMPS_EPOCH:
        coordinator.end_and_bump(name, identity, respond, commit=request.committed)
    else:
        coordinator.end(name, identity, respond, commit=request.committed)


def describe_transactions(call: Call) -> None:
    states = list(map(partial(_describe, call), call.request.transactional_ids))
    call.respond(DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states))


def _describe(call: Call, name: str) -> Any:
    state: TransactionState | None = None
    try:
        state = _coordinator(call, name).states.get(name)
        code = Code.NONE if state is not None else Code.TRANSACTIONAL_ID_NOT_FOUND
    except RequestError as error:
        code = error.code
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(state.partitions if state else ()):
        topics.setdefault(topic, []).append(number)
    return _Described(
        error_code=code,
        transactional_id=name,
        transaction_state=state.state if state else "",
        transaction_timeout_ms=state.timeout_ms if state else 0,
        transaction_start_time_ms=state.started_ms if state else 0,
        producer_id=state.producer_id if state else 0,
        producer_epoch=state.epoch if state else 0,
        topics=[
            _Described.TopicData(topic=topic, partitions=partitions)
            for topic, partitions in topics.items()
        ],
    )


def list_transactions(call: Call) -> None:
    kind = ListTransactionsResponse.TransactionState
    filters, producers = call.request.state_filters, call.request.producer_id_filters
    coordinators = [
        coordinator
        for coordinator in call.node.coordinators.values()
        if isinstance(coordinator, TransactionCoordinator)
    ]
    loading = any(coordinator.loading for coordinator in coordinators)
    states = [
        kind(transactional_id=name, producer_id=state.producer_id, transaction_state=state.state)
        for coordinator in coordinators
        for name, state in coordinator.states.items()
        if (not filters or state.state in filters)
        and (not producers or state.producer_id in producers)
    ]
    call.respond(
        ListTransactionsResponse(
            throttle_time_ms=0,
            error_code=Code.COORDINATOR_LOAD_IN_PROGRESS if loading else Code.NONE,
            unknown_state_filters=[name for name in filters if name not in STATES],
            transaction_states=[] if loading else states,
        )
    )


APIS = [
    (InitProducerIdRequest, (0, 5), init_producer_id),
    (AddPartitionsToTxnRequest, (0, 3), add_partitions),
    (EndTxnRequest, (0, 5), end_txn),
    (DescribeTransactionsRequest, (0, 0), describe_transactions),
    (ListTransactionsRequest, (0, 1), list_transactions),
]
