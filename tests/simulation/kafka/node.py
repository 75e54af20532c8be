"""
One broker: its process, connectivity, replicas and open requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.kafka.replica import Replica

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.simulation.kafka.coordinator import Coordinator
    from tests.simulation.kafka.image import Image, Partition, PartitionState, Shard, TopicState
    from tests.simulation.kafka.world import World


class Reply:
    """
    The callback for the response to one request. It is called at most once, and with None if the
    broker dies first.
    """

    def __init__(self, node: Node, send: Callable[[bytes | None], None]) -> None:
        self._node, self._send = node, send
        self.open = True
        node.requests[self] = None

    def __call__(self, response: bytes | None) -> None:
        if not self.open:
            return
        if self._node.paused and response is not None:
            self._node.on_resume(lambda: self(response))
            return
        self.drop()
        self._send(response)

    def drop(self) -> None:
        """
        End the request without a response, as brokers do with acks=0.
        """
        if self.open:
            self.open = False
            del self._node.requests[self]


class Node:
    """
    ``image`` holds the metadata that the broker knows, which is stale while it is isolated.
    """

    def __init__(self, node_id: int, world: World) -> None:
        self.id = node_id
        self.world = world
        self.alive = True
        self.isolated = False
        self.paused = False
        self.throttle_ms = 0
        #: Counts starts, so that actions of an earlier process are not continued.
        self.incarnation = 0
        #: Counts how often the controller could no longer reach it.
        self.losses = 0
        #: The time until which its metadata lacks all topics, as on a broker that has just started.
        self.forgets_until = 0.0
        self.image: Image | None = None
        self.replicas: dict[Partition, Replica] = {}
        self.coordinators: dict[Shard, Coordinator] = {}
        #: The open requests in order; a dict, since its entries are quickly removed.
        self.requests: dict[Reply, None] = {}
        #: Encoded responses that depend on the metadata alone, by request; see ``wire``.
        self.answers: dict[Any, bytes] = {}
        self._after_resume: list[Callable[[], None]] = []

    @property
    def serving(self) -> bool:
        return self.alive and not self.paused

    @property
    def reachable(self) -> bool:
        """
        Whether other brokers and the controller can reach it.
        """
        return self.serving and not self.isolated

    @property
    def known(self) -> Image:
        assert self.image is not None
        return self.image

    @property
    def named_topics(self) -> Mapping[str, TopicState]:
        """
        The topics that its metadata responses contain.
        """
        return {} if self.world.now() < self.forgets_until else self.known.topics

    def on_resume(self, action: Callable[[], None]) -> None:
        self._after_resume.append(action)

    def resume(self) -> None:
        self.paused = False
        actions, self._after_resume = self._after_resume, []
        for action in actions:
            action()

    def run(self, incarnation: int, action: Callable[[], None]) -> None:
        """
        Run an action of one process of this broker: later if it is paused, never if it has died.
        """
        if self.incarnation != incarnation:
            return
        if self.paused:
            self.on_resume(lambda: self.run(incarnation, action))
        else:
            action()

    def lose(self) -> None:
        """
        Record that the controller no longer reaches this node.
        """
        self.losses += 1
        self.world.controller.lose_connection(self)

    def die(self) -> None:
        self.alive = False
        self.paused = False
        self._after_resume.clear()
        self.incarnation += 1
        # The requests are ended first, so that stopping a replica checks none of them again.
        for reply in list(self.requests):
            reply(None)
        self.image = None
        self.coordinators.clear()
        for replica in self.replicas.values():
            replica.stop()

    def apply(self, image: Image) -> None:
        """
        Apply the controller's decisions.
        """
        from tests.simulation.kafka.coordinator import coordinate

        before, self.image = self.image, image
        self.answers.clear()
        for partition, replica in list(self.replicas.items()):
            topic = image.topics.get(partition.topic)
            if topic is None or topic.topic_id != replica.topic_id:
                self.replicas.pop(partition).stop()
        for partition, state in image.partitions():
            if self.id in state.replicas:
                self._apply(partition, state)
        if before is None or before.shards is not image.shards:
            coordinate(self, image)

    def _apply(self, partition: Partition, state: PartitionState) -> None:
        replica = self.replicas.get(partition)
        if replica is None:
            topic_id = self.known.topics[partition.topic].topic_id
            replica = self.replicas[partition] = Replica(self, partition, topic_id)
        replica.apply(state, self.known.topics[partition.topic].min_isr)
