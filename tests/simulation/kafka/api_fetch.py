"""
Fetch: whole batches up to the high watermark or the last stable offset, and long polls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kafka.protocol.consumer import FetchRequest, FetchResponse
from tests.simulation.kafka.call import Call, find_replica
from tests.simulation.kafka.codes import Code, RequestError
from tests.simulation.kafka.image import Partition

if TYPE_CHECKING:
    from tests.simulation.kafka.replica import Replica

_Topic = FetchResponse.FetchableTopicResponse
_READ_COMMITTED = 1
#: From this version on, consumers may fetch from followers (KIP-392).
_FROM_FOLLOWERS = 11
_TOPIC_IDS = 13


class _Part(NamedTuple):
    """
    The result for one partition.
    """

    code: Code
    high_watermark: int = -1
    last_stable: int = -1
    log_start: int = -1
    aborted: list[Any] | None = None
    records: bytes = b""


def fetch(call: Call) -> None:
    _Fetch(call).start()


class _Fetch:
    """
    A Fetch request, answered at once or when enough bytes can be read.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._request = call.request
        self._committed = call.request.isolation_level == _READ_COMMITTED
        self._finished = False

    def start(self) -> None:
        if self._check() or not self._request.max_wait_ms:
            self._finish()
            return
        for replica in self._replicas():
            # Only later changes matter: the check has just failed.
            replica.wait(self._try)
        seconds = self._request.max_wait_ms / 1000
        self._call.node.world.schedule.call_later(seconds, self._finish)

    def _try(self) -> bool:
        if self._finished or not self._call.reply.open:
            return True
        if self._check():
            self._finish()
        return self._finished

    def _finish(self) -> None:
        if not self._finished and self._call.reply.open:
            self._finished = True
            response, world = self._response(self._read()), self._call.node.world
            slow = [
                world.slow_reads.get(replica.partition.topic, 0) for replica in self._replicas()
            ]
            seconds = max(slow, default=0)
            if seconds:
                delay = world.random.uniform(0, seconds)
                world.schedule.call_later(delay, lambda: self._call.respond(response))
            else:
                self._call.respond(response)

    def _check(self) -> bool:
        """
        Return whether the response is due: enough bytes, or an error.
        """
        parts = self._read().values()
        if not parts or any(part.code for part in parts):
            return True
        min_bytes: int = max(self._request.min_bytes, 0)
        return sum(len(part.records) for part in parts) >= min_bytes

    def _replicas(self) -> list[Replica]:
        replicas = []
        for topic in self._request.topics:
            name = self._call.topic_name(topic.topic, topic.topic_id)
            for requested in topic.partitions:
                partition = Partition(name or "", requested.partition)
                if partition in self._call.node.replicas:
                    replicas.append(self._call.node.replicas[partition])
        return replicas

    def _read(self) -> dict[tuple[int, int], _Part]:
        parts, remaining = {}, max(self._request.max_bytes, 0)
        empty = True
        for topic in self._request.topics:
            name = self._call.topic_name(topic.topic, topic.topic_id)
            for requested in topic.partitions:
                part = self._part(name, requested, remaining, whole=empty)
                parts[id(topic), requested.partition] = part
                remaining = max(remaining - len(part.records), 0)
                empty = empty and not part.records
        return parts

    def _part(self, name: str | None, requested: Any, remaining: int, *, whole: bool) -> _Part:
        if name is None:
            return _Part(Code.UNKNOWN_TOPIC_ID)
        try:
            replica = find_replica(
                self._call.node,
                Partition(name, requested.partition),
                requested.current_leader_epoch,
                leader_only=self._call.version < _FROM_FOLLOWERS,
            )
            return self._of_replica(replica, requested, remaining, whole=whole)
        except RequestError as error:
            return _Part(error.code)

    def _of_replica(
        self, replica: Replica, requested: Any, remaining: int, *, whole: bool
    ) -> _Part:
        log, offset = replica.log, requested.fetch_offset
        if not log.start <= offset <= log.end:
            raise RequestError(Code.OFFSET_OUT_OF_RANGE)
        stable = replica.last_stable
        limit = stable if self._committed else replica.high_watermark
        records, end = _read(
            replica, offset, limit, min(remaining, requested.partition_max_bytes), whole
        )
        if records and self._is_tiered(replica.partition.topic):
            records, end = b"", offset
        return _Part(
            Code.NONE,
            replica.high_watermark,
            stable,
            log.start,
            self._aborted(replica, offset, end) if self._committed else None,
            records,
        )

    def _is_tiered(self, topic: str) -> bool:
        """
        Return whether this read returns no records although the log has some, as in tiered storage.
        """
        node = self._call.node
        probability = node.world.empty_reads.get(topic, 0.0)
        return bool(probability) and node.world.random.random() < probability

    def _aborted(self, replica: Replica, start: int, end: int) -> list[Any]:
        return [
            _Topic.PartitionData.AbortedTransaction(
                producer_id=ended.producer_id, first_offset=ended.first_offset
            )
            for ended in replica.log.producers.aborted(start, end)
        ]

    def _response(self, parts: dict[tuple[int, int], _Part]) -> Any:
        topics = [
            _Topic(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    _partition(requested.partition, parts[id(topic), requested.partition])
                    for requested in topic.partitions
                ],
            )
            for topic in self._request.topics
        ]
        return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=topics)


def _read(
    replica: Replica, offset: int, limit: int, max_bytes: int, whole: bool
) -> tuple[bytes, int]:
    """
    Return the bytes of the batches, starting with the one that contains ``offset``, and the offset
    after them.

    The last batch may be truncated. The first batch is returned whole, unless the response has
    records already.
    """
    pieces: list[bytes] = []
    size, end = 0, offset
    for batch in replica.log.read_from(offset, limit):
        if size >= max_bytes and (pieces or not whole):
            break
        if not pieces and len(batch.data) > max_bytes and not whole:
            break
        room = len(batch.data) if not pieces else max_bytes - size
        pieces.append(batch.data[:room])
        size, end = size + len(pieces[-1]), batch.next_offset
    return b"".join(pieces), end


def _partition(index: int, part: _Part) -> Any:
    return _Topic.PartitionData(
        partition_index=index,
        error_code=part.code,
        high_watermark=part.high_watermark,
        last_stable_offset=part.last_stable,
        log_start_offset=part.log_start,
        aborted_transactions=part.aborted,
        preferred_read_replica=-1,
        records=part.records,
    )


APIS = [(FetchRequest, (4, 17), fetch)]
