"""
One request at one broker, and lookups that several APIs share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.simulation.kafka.codes import Code, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.kafka.image import Partition
    from tests.simulation.kafka.node import Node, Reply
    from tests.simulation.kafka.replica import Replica


@dataclass
class Call:
    """
    A decoded request. Its handler calls ``respond`` once with the response; ``reply(None)`` closes
    the connection instead.
    """

    node: Node
    request: Any
    version: int
    client_id: str
    respond: Callable[[Any], None]
    reply: Reply

    def topic_name(self, name: str | None, topic_id: Any) -> str | None:
        """
        Return a topic's name, None for an id that this broker does not know.
        """
        if name:
            return name
        topic = self.node.known.topic_of(topic_id)
        return None if topic is None else topic.name


def find_replica(
    node: Node, partition: Partition, epoch: int = -1, *, leader_only: bool = True
) -> Replica:
    """
    Return this broker's replica, checked against a client's leader epoch (KIP-320).

    Raises :class:`RequestError` with the error code that Kafka answers with.
    """
    replica = node.replicas.get(partition)
    if replica is None:
        is_known = node.known.find(partition) is not None
        raise RequestError(
            Code.NOT_LEADER_OR_FOLLOWER if is_known else Code.UNKNOWN_TOPIC_OR_PARTITION
        )
    if epoch >= 0 and epoch < replica.epoch:
        raise RequestError(Code.FENCED_LEADER_EPOCH)
    if epoch > replica.epoch:
        raise RequestError(Code.UNKNOWN_LEADER_EPOCH)
    if leader_only and not replica.leads:
        raise RequestError(Code.NOT_LEADER_OR_FOLLOWER)
    return replica


class Gathered:
    """
    Collects the results of a request's parts, and calls ``done`` after the last one.
    """

    def __init__(self, parts: int, done: Callable[[dict[Any, Any]], None]) -> None:
        self._missing = parts
        self._results: dict[Any, Any] = {}
        self._done = done
        if not parts:
            done({})

    def put(self, part: Any, result: Any) -> None:
        assert part not in self._results
        self._results[part] = result
        self._missing -= 1
        if not self._missing:
            self._done(self._results)
