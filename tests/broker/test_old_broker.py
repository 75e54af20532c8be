"""
The oldest supported broker, and the message formats before record batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.broker.conftest import ENGINES, in_order
from tests.support import fetching
from tests.support.log_files import stored_batches
from tests.support.metadata_backends import metadata_backend_of
from tests.support.old_broker import old_broker
from tests.support.producing import batch_of, placed, settings, write

from pyspark_pykafka.engines.selection import fetch, write_in_transaction
from pyspark_pykafka.engines.transaction_contract import FallbackId
from pyspark_pykafka.errors import KafkaClientError
from pyspark_pykafka.offsets import OffsetRange, TopicPartition
from pyspark_pykafka.testing import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from tests.support.old_broker import OldBroker

# A topic's message.format.version, and the magic byte that the broker then stores.
FORMATS = {"0.9.0": 0, "0.10.2": 1}
CODECS = ("none", "gzip", "snappy", "lz4")
MAGIC_AT = 16
COUNT, TIME = 300, 1_700_000_000_000
CONNECTORS = [("kafka", {}), *(("pykafka", {"engine": engine}) for engine in ENGINES)]


@pytest.fixture(scope="module")
def kafka() -> Iterator[OldBroker]:
    """
    One old broker for all tests of this file.
    """
    with old_broker() as cluster:
        yield cluster


@pytest.mark.parametrize("engine", ENGINES)
def test_records_written_and_read(kafka: OldBroker, engine: str) -> None:
    """
    Records of either engine, with headers, are read by a plain client.
    """
    topic = kafka.create_topic(f"written-{engine}", 2)
    rows = [Record(b"v%d" % n, None, n % 2, 1_000 + n, (("h", b"%d" % n),)) for n in range(500)]

    assert write(kafka.bootstrap, [batch_of(rows)], topic, engine) == 500

    assert kafka.consume(topic) == placed(rows)


@pytest.mark.parametrize("fallback", [None, FallbackId("old-again1", "old-again")])
def test_exactly_once_is_rejected(kafka: OldBroker, fallback: FallbackId | None) -> None:
    """
    Exactly-once is rejected before a record is sent: before Kafka 3.0 the outcome of a transaction
    cannot be read.
    """
    topic = kafka.create_topic(f"exactly-once-{fallback is None}")
    rows = batch_of([Record(b"v", None, 0)])

    with pytest.raises(
        KafkaClientError, match=r"^exactly-once needs .* 3\.0 or newer .* at-least-once$"
    ):
        write_in_transaction([rows], settings(kafka.bootstrap), topic, "old", fallback=fallback)

    assert kafka.consume(topic) == []


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("version", ["2.4", "0.10.2"])
def test_leader_epochs(kafka: OldBroker, version: str, engine: str) -> None:
    """
    The log end has its leader epoch, and wire reads the end of that epoch, unless the message
    format is old and has no epochs. librdkafka checks epochs itself.
    """
    topic = kafka.create_topic(f"epochs-{version}-{engine}", 1, {"message.format.version": version})
    kafka.produce(topic, [Record(b"v")] * 3)
    backend = metadata_backend_of(settings(kafka.bootstrap), "read_uncommitted", engine)
    tp = TopicPartition(topic, 0)
    backend.describe_topics({topic})

    ends = backend.log_ends([tp])

    assert ends.offsets == {tp: 3}
    assert set(ends.epochs.values()) <= {0}
    expected = {tp: 3 if version == "2.4" else -1} if engine == "wire" else {}
    assert backend.offsets_for_leader_epochs({tp: 0}) == expected
    # With the old format the offsets have an epoch, but the log has none: no data loss.
    planned = OffsetRange(tp, 1, 3, None, start_epoch=0, end_epoch=0)
    fetch_settings = fetching.settings(kafka.bootstrap, engine, schema=fetching.VALUES)
    assert sum(batch.num_rows for batch in fetch(planned, fetch_settings)) == 2


@pytest.mark.side_by_side
@pytest.mark.parametrize("version", FORMATS)
def test_old_formats(spark: SparkSession, kafka: OldBroker, version: str) -> None:
    """
    Every engine reads records in an old format, before newer ones, as the JVM connector does; the
    tasks of a split range begin in the middle of either.
    """
    topic = kafka.create_topic(f"old-{version}", 2, {"message.format.version": version})
    write_with_all_codecs(kafka, topic)
    assert magics(kafka, topic) == {FORMATS[version]}
    store_as(kafka, topic, "2.4")
    write_with_all_codecs(kafka, topic)
    assert magics(kafka, topic) == {FORMATS[version], 2}
    assert read_alike(spark, kafka, topic) == 2 * len(CODECS) * COUNT
    part = {"startingOffsets": f'{{"{topic}": {{"0": 17, "1": 101}}}}', "minPartitions": "4"}
    assert read_alike(spark, kafka, topic, **part) == 2 * len(CODECS) * COUNT - 17 - 101


def write_with_all_codecs(kafka: OldBroker, topic: str) -> None:
    """
    Write records without headers, which every format supports, to two partitions.
    """
    for codec in CODECS:
        rows = [
            Record(b"%d" % n * (n % 5), b"k%d" % n if n % 3 else None, n % 2, TIME + n)
            for n in range(COUNT)
        ]
        kafka.produce(topic, rows, {"compression.type": codec})


def read_alike(spark: SparkSession, kafka: OldBroker, topic: str, **options: str) -> int:
    """
    Return the number of records that all connectors and engines read; they must be equal.
    """
    source = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic}
    expected, *others = [
        in_order(spark.read.format(name).options(**source, **connector_options, **options).load())
        for name, connector_options in CONNECTORS
    ]
    for rows, connector in zip(others, CONNECTORS[1:], strict=True):
        assert rows == expected, connector
    return len(expected)


def magics(kafka: OldBroker, topic: str) -> set[int]:
    """
    Return the message formats in a topic's log, by their magic byte.
    """
    return {batch[MAGIC_AT] for batch in stored_batches(kafka.data_folder, topic)}


def store_as(kafka: OldBroker, topic: str, version: str) -> None:
    """
    Let the broker store further records in another message format.
    """
    entry = ConfigEntry(
        "message.format.version", version, incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = kafka.admin()
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)
