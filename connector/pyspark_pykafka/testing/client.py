"""
Topics and records on any Kafka cluster, whether started by the tests or external.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from . import readiness, records
from .properties import setting_text
from .waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .records import Record

SECONDS = 60.0


class KafkaAccess(ABC):
    """
    A cluster at `bootstrap`; `client_config` holds librdkafka settings for its clients.
    """

    client_config: Mapping[str, Any]
    #: Whether topics outlive the tests, since the cluster does.
    keeps_topics = False

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """
        The brokers' addresses, as 'host:port,host:port'.
        """

    def admin(self, bootstrap: str | None = None) -> AdminClient:
        """
        Return an admin client whose log is off.
        """
        return AdminClient(
            readiness.client_settings(bootstrap or self.bootstrap, self.client_config)
        )

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        replication_factor: int = -1,
    ) -> str:
        """
        Create a topic and return its name once every broker serves every partition of it.

        A replication factor of -1 means the brokers' default.
        """
        settings = {key: setting_text(value) for key, value in (config or {}).items()}
        topic = NewTopic(name, partitions, replication_factor, config=settings)
        self._create(topic)
        for address in self.running_addresses():
            self._wait_for_topic(address, topic)
        return name

    def delete_topic(self, name: str) -> None:
        """
        Delete a topic; one that does not exist is not an error.
        """
        admin = self.admin()
        future = admin.delete_topics([name], request_timeout=SECONDS)[name]
        try:
            future.result(timeout=2 * SECONDS)
        except KafkaException as error:
            if not readiness.is_missing(error):
                raise

    def running_addresses(self) -> list[str]:
        """
        Return the addresses of the brokers that should be running now.
        """
        return self.bootstrap.split(",")

    def running_ids(self) -> set[int]:
        """
        Return the ids of the brokers that should be running now; empty if they are not known.
        """
        return set()

    def _create(self, topic: NewTopic) -> None:
        attempts = 0

        def creation_blocker() -> str | None:
            nonlocal attempts
            attempts += 1
            try:
                return readiness.creation_blocker(
                    lambda: self.admin(",".join(self.running_addresses())), topic
                )
            except KafkaException as error:
                if attempts > 1 and readiness.already_exists(error):
                    return None
                raise

        wait_until(creation_blocker, SECONDS)

    def _wait_for_topic(self, address: str, topic: NewTopic) -> None:
        wait_until(
            lambda: readiness.missing_topic(
                lambda: self.admin(address),
                topic.topic,
                topic.num_partitions,
                self.running_ids(),
            ),
            SECONDS,
        )

    def produce(
        self,
        topic: str,
        records_to_write: Iterable[Record],
        config: Mapping[str, Any] | None = None,
        seconds: float = SECONDS,
    ) -> list[Record]:
        """
        Write records and return them with partition, offset and timestamp filled in.

        Raises `DeliveryError` if a record was not written. `config` holds librdkafka's settings for
        the producer.
        """
        settings = {
            **readiness.client_settings(self.bootstrap, self.client_config),
            **(config or {}),
        }
        return records.produce(topic, records_to_write, settings, seconds)

    def consume(
        self, topic: str, config: Mapping[str, Any] | None = None, seconds: float = SECONDS
    ) -> list[Record]:
        """
        Read a topic from its start to its current end, sorted by partition and offset.

        Aborted records are included unless `config` has {"isolation.level": "read_committed"}.
        """
        settings = {
            **readiness.client_settings(self.bootstrap, self.client_config),
            **(config or {}),
        }
        return records.consume(topic, settings, seconds)
