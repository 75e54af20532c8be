"""
A stream of typed Avro through a standalone cluster, with a new schema and bad records in it.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.support.schema_registry import FakeRegistry, framed, running_registry
from tests.support.standalone_cluster import standalone_cluster

from pyspark_pykafka.cli import main
from pyspark_pykafka.testing import Record
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable

    from pyspark_pykafka.testing import KafkaCluster
    from pyspark_pykafka.testing.plugin import TopicFactory

JOB = Path(__file__).with_name("typed_job.py")
OLD: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}],
}
#: With a field that the query's schema does not have.
NEW: dict[str, Any] = OLD | {
    "fields": [*OLD["fields"], {"name": "note", "type": "string", "default": ""}]
}
#: The id of a schema that the registry gets only after the query has read a record of it.
LATE_ID = 4000
TIMEOUT_SECONDS = 120


class AvroTopic:
    """
    A topic whose records Confluent's serializer writes.
    """

    def __init__(self, kafka: KafkaCluster, registry: FakeRegistry, name: str) -> None:
        self.name = name
        self._kafka = kafka
        self._client = SchemaRegistryClient({"url": registry.url})

    def encode(self, schema: dict[str, Any], value: dict[str, Any]) -> bytes:
        serializer = AvroSerializer(self._client, json.dumps(schema))
        return bytes(serializer(value, SerializationContext(self.name, MessageField.VALUE)))

    def send(self, values: Iterable[bytes]) -> None:
        """
        Write values to the three partitions in turn.
        """
        records = [Record(value, partition=index % 3) for index, value in enumerate(values)]
        self._kafka.produce(self.name, records)


def committed_ids(kafka: KafkaCluster, topic: str) -> list[int]:
    """
    Return the ids of committed records, as a plain consumer reads them.
    """
    records = kafka.consume(topic, {"isolation.level": "read_committed"})
    return sorted(json.loads(record.value or b"")["id"] for record in records)


def deadletter(kafka: KafkaCluster, action: str, topic: str, *arguments: str) -> int:
    """
    Run `pykafka deadletter` on a topic.
    """
    brokers = ("--bootstrap-server", kafka.bootstrap)
    return main(["deadletter", action, *brokers, "--topic", topic, "--json", *arguments])


@pytest.mark.soak
def test_typed_stream_on_a_cluster(
    kafka_cluster: KafkaCluster,
    topic: TopicFactory,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """
    The stream continues after a new schema, a record of an unknown schema, and bytes that are not
    Avro; both records are found in the dead-letter topic, and the first one, replayed once the
    registry has its schema, arrives. Each id arrives once.
    """
    source_name, target, dead_letters = topic(partitions=3), topic(partitions=2), topic()
    stop = tmp_path / "stop"
    brokers = {"kafka.bootstrap.servers": kafka_cluster.bootstrap}
    with (
        running_registry(FakeRegistry()) as registry,
        standalone_cluster(tmp_path, workers=2) as spark_cluster,
    ):
        source = AvroTopic(kafka_cluster, registry, source_name)
        source.send(source.encode(OLD, {"id": number}) for number in range(100))
        reading = {
            **brokers,
            **registry.options(),
            "subscribe": source_name,
            "startingOffsets": "earliest",
            "valueFormat": "avro",
            "onBadRecord": "deadletter",
            "deadLetterTopic": dead_letters,
        }
        writing = {
            **brokers,
            "topic": target,
            "deliveryGuarantee": "exactly-once",
            "transactionalIdPrefix": target,
        }
        ended: list[subprocess.CompletedProcess[str]] = []

        def run_job() -> None:
            checkpoint = str(tmp_path / "checkpoint")
            arguments = [json.dumps(reading), json.dumps(writing), checkpoint, str(stop)]
            python = {"PYSPARK_PYTHON": sys.executable}
            ended.append(spark_cluster.submit(JOB, arguments, (), python, tmp_path))

        def wait_for_ids(end: int) -> None:
            def missing() -> str | None:
                if ended:
                    pytest.fail(ended[0].stdout[-4000:] + ended[0].stderr[-4000:])
                ids = committed_ids(kafka_cluster, target)
                return None if ids == [*range(end)] else f"{len(ids)} of {end} records"

            wait_until(missing, TIMEOUT_SECONDS)

        def missing_letters(count: int) -> str | None:
            letters = kafka_cluster.consume(dead_letters)
            return None if len(letters) >= count else f"{len(letters)} of {count} dead letters"

        job = threading.Thread(target=run_job)
        job.start()
        try:
            wait_for_ids(100)
            late_record = source.encode(NEW, {"id": 200, "note": "late"})
            late_body = late_record[5:]
            source.send(
                [
                    *(
                        source.encode(NEW, {"id": number, "note": "x"})
                        for number in range(100, 150)
                    ),
                    framed(LATE_ID, late_body),
                    b"not Avro",
                    *(source.encode(OLD, {"id": number}) for number in range(150, 200)),
                ]
            )
            wait_for_ids(200)

            assert deadletter(kafka_cluster, "list", dead_letters) == 0
            listed = json.loads(capsys.readouterr().out)
            errors = sorted(letter["why"]["error.message"] for letter in listed)
            assert len(errors) == 2
            assert any(f"does not know id {LATE_ID}" in error for error in errors)

            registry.add(f"{source_name}-value", NEW, schema_id=LATE_ID)
            assert deadletter(kafka_cluster, "replay", dead_letters, "--execute") == 0
            capsys.readouterr()
            wait_for_ids(201)
            wait_until(lambda: missing_letters(3), TIMEOUT_SECONDS)
        finally:
            stop.touch()
            job.join()
    assert ended[0].returncode == 0, ended[0].stdout[-4000:] + ended[0].stderr[-4000:]
    # After the replay, the bytes that are not Avro are a dead letter again.
    bodies = sorted(record.value or b"" for record in kafka_cluster.consume(dead_letters))
    assert bodies == [framed(LATE_ID, late_body), b"not Avro", b"not Avro"]
