"""
Produce: checks, appends, and waits for the in-sync replicas.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka.protocol.producer import ProduceRequest, ProduceResponse
from tests.simulation.kafka.batches import parse_batch
from tests.simulation.kafka.call import Call, Gathered, find_replica
from tests.simulation.kafka.codes import Code, RequestError
from tests.simulation.kafka.coordinator import shard_for
from tests.simulation.kafka.image import TRANSACTIONS, Partition

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.kafka.batches import StoredBatch
    from tests.simulation.kafka.node import Node
    from tests.simulation.kafka.replica import Replica

_Topic = ProduceResponse.TopicProduceResponse
#: From this version on, producing adds the partition to the transaction (KIP-890).
_ADDS_PARTITIONS = 12
_SAYS_ABORTABLE = 11
_ALL_IN_SYNC = -1


class _Result(NamedTuple):
    code: Code
    base_offset: int = -1
    log_start: int = -1
    message: str | None = None


def produce(call: Call) -> None:
    request = call.request
    parts = [
        (topic, part, call.topic_name(topic.name, topic.topic_id))
        for topic in request.topic_data
        for part in topic.partition_data
    ]

    def done(results: dict[Any, Any]) -> None:
        if request.acks:
            call.respond(_response(request, results))
        elif any(result.code for result in results.values()):
            # With acks=0 there is no response: to report an error, a broker closes the connection.
            call.reply(None)
        else:
            call.reply.drop()

    gathered = Gathered(len(parts), done)
    for topic, part, name in parts:
        put = partial(gathered.put, (id(topic), part.index))
        if request.acks not in {-1, 0, 1}:
            put(_Result(Code.INVALID_REQUIRED_ACKS))
        elif name is None:
            put(_Result(Code.UNKNOWN_TOPIC_ID))
        else:
            _Append(call, Partition(name, part.index), put).start(bytes(part.records or b""))


def _response(request: Any, results: dict[Any, _Result]) -> Any:
    return ProduceResponse(
        throttle_time_ms=0,
        responses=[
            _Topic(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    _partition(part.index, results[id(topic), part.index])
                    for part in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ],
    )


def _partition(index: int, result: _Result) -> Any:
    return _Topic.PartitionProduceResponse(
        index=index,
        error_code=result.code,
        base_offset=result.base_offset,
        log_append_time_ms=-1,
        log_start_offset=result.log_start,
        record_errors=[],
        error_message=result.message,
    )


class _Append:
    """
    The append of one batch, which may need a transaction coordinator's consent first.
    """

    def __init__(self, call: Call, partition: Partition, put: Callable[[_Result], None]) -> None:
        self._call, self._partition, self._put = call, partition, put

    def start(self, data: bytes) -> None:
        try:
            replica = find_replica(self._call.node, self._partition)
            batch = self._checked(data)
        except RequestError as error:
            self._put(_Result(error.code, message=error.args[1] or None))
            return
        open_ = replica.log.producers.is_open(batch.producer_id, batch.producer_epoch)
        if batch.transactional and not open_:
            self._verify(batch)
        else:
            self._append(batch)

    def _checked(self, data: bytes) -> StoredBatch:
        world = self._call.node.world
        if len(data) > world.settings.max_message_bytes:
            raise RequestError(Code.MESSAGE_TOO_LARGE)
        batch = parse_batch(data)
        limit = world.now_ms() + world.settings.timestamp_after_max_ms
        if batch.max_timestamp > limit:
            raise RequestError(Code.INVALID_TIMESTAMP)
        topic = self._call.node.known.topics[self._partition.topic]
        if topic.compacted and any(record.key is None for record in batch.records()):
            raise RequestError(Code.INVALID_RECORD, "a compacted topic needs keys")
        return batch

    def _verify(self, batch: StoredBatch) -> None:
        """
        Ask the coordinator whether the partition is in the transaction, or add it.
        """
        name = self._call.request.transactional_id
        identity = (batch.producer_id, batch.producer_epoch)
        coordinator = _reachable_coordinator(self._call.node, name or "")
        if coordinator is None:
            self._put(_Result(Code.NOT_ENOUGH_REPLICAS))
        elif self._call.version >= _ADDS_PARTITIONS:
            partitions = [self._partition]
            coordinator.add_partitions(name, identity, partitions, partial(self._verified, batch))
        else:
            self._verified(batch, coordinator.verify(name, identity, self._partition))

    def _verified(self, batch: StoredBatch, code: Code) -> None:
        version = self._call.version
        if code == Code.PRODUCER_FENCED:
            code = Code.INVALID_PRODUCER_EPOCH
        elif code == Code.TRANSACTION_ABORTABLE and version < _SAYS_ABORTABLE:
            code = Code.INVALID_TXN_STATE
        elif (code == Code.CONCURRENT_TRANSACTIONS and version < _ADDS_PARTITIONS) or code in {
            Code.NOT_COORDINATOR,
            Code.COORDINATOR_NOT_AVAILABLE,
        }:
            code = Code.NOT_ENOUGH_REPLICAS
        if code:
            self._put(_Result(code))
        else:
            self._append(batch)

    def _append(self, batch: StoredBatch) -> None:
        try:
            # The leader may have changed during the request to the coordinator.
            replica = find_replica(self._call.node, self._partition)
            stored = self._stored(replica, batch)
        except RequestError as error:
            self._put(_Result(error.code, message=error.args[1] or None))
            return
        result = _Result(Code.NONE, stored.base_offset, replica.log.start)
        if self._needs_all:
            self._wait(replica, stored.next_offset, result)
        else:
            self._put(result)

    @property
    def _needs_all(self) -> bool:
        return bool(self._call.request.acks == _ALL_IN_SYNC)

    def _stored(self, replica: Replica, batch: StoredBatch) -> StoredBatch:
        is_short = len(replica.isr) < replica.min_isr or self._is_refused()
        if self._needs_all and is_short:
            raise RequestError(Code.NOT_ENOUGH_REPLICAS)
        producers = replica.log.producers
        if batch.producer_id >= 0:
            duplicate = producers.duplicate_of(batch)
            if duplicate is not None:
                return duplicate
            producers.check(batch)
        return replica.append(batch)

    def _is_refused(self) -> bool:
        world = self._call.node.world
        probability = world.refused_writes.get(self._partition.topic, 0.0)
        return bool(probability) and world.random.random() < probability

    def _wait(self, replica: Replica, end: int, result: _Result) -> None:
        epoch, finished = replica.epoch, False

        def finish(code: Code) -> bool:
            nonlocal finished
            if not finished:
                finished = True
                self._put(result._replace(code=code) if not code else _Result(code))
            return True

        def time_out() -> None:
            finish(Code.REQUEST_TIMED_OUT)

        def check() -> bool:
            if finished or not replica.leads or replica.epoch != epoch:
                return finish(Code.NOT_LEADER_OR_FOLLOWER)
            if replica.high_watermark < end:
                return False
            has_min_isr = len(replica.isr) >= replica.min_isr
            return finish(Code.NONE if has_min_isr else Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

        replica.wait(check)
        if not finished:
            seconds = self._call.request.timeout_ms / 1000
            node = self._call.node
            node.world.schedule.call_later(seconds, time_out)


def _reachable_coordinator(node: Node, name: str) -> Any:
    shard = shard_for(node, TRANSACTIONS, name)
    leader = node.known.shards[shard].node
    if leader not in node.world.nodes or not node.world.connected(node.id, leader):
        return None
    coordinator = node.world.nodes[leader].coordinators.get(shard)
    return None if coordinator is None or coordinator.loading else coordinator


APIS = [(ProduceRequest, (3, 13), produce)]
