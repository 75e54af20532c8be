"""
Records written by the wire engine are read back by other clients, and rows that cannot be written
are errors.
"""

from __future__ import annotations

import json
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from tests.broker.test_wire_connection import SCRAM_MODULE, create_scram_users, login
from tests.broker.test_wire_connection import write_certificates as make_certificates
from tests.support import kafka_tool
from tests.support.console_tool import consume
from tests.support.log_files import stored_batches
from tests.support.producing import batch_of, placed, write

from pyspark_pykafka.cli import main
from pyspark_pykafka.cli.exit_codes import ExitCode
from pyspark_pykafka.engines.selection import transaction_client
from pyspark_pykafka.errors import (
    AuthorizationError,
    PykafkaError,
    RecordError,
    UnknownTopicError,
)
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.options import parse_sink, parse_stream_source
from pyspark_pykafka.source.factory import metadata_client
from pyspark_pykafka.testing import KAFKA_VERSION, KafkaCluster, Record
from pyspark_pykafka.testing.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import Row, SparkSession

_ATTRIBUTES = slice(21, 23)
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
VERSIONS = ("3.9.2", "4.0.2", KAFKA_VERSION)

#: The hashes of Java's Utils.murmur2 for these keys, from Kafka's own tests.
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
MANY = 97

# The limit of a test: it is exceeded if a known error is raised only after a timeout.
at_once = pytest.mark.timeout(60)
LONG_TIMEOUTS = {"delivery_timeout_ms": 600_000, "max_block_ms": 600_000}


@pytest.fixture(
    scope="module",
    # test_old_broker.py writes to an older one.
    params=[
        *(pytest.param(version, marks=pytest.mark.soak) for version in VERSIONS[:2]),
        VERSIONS[2],
    ],
)
def any_version(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """
    A broker of each version, which auto-creates topics.
    """
    config = {"auto.create.topics.enable": True, "num.partitions": 3}
    with KafkaCluster(version=request.param, config=config) as kafka:
        yield kafka


def all_kinds(codec: str, partitions: int = 3) -> list[Record]:
    """
    Return records whose parts are null, empty, long or repeated, with descending timestamps.
    """
    chance = random.Random(codec)
    contents = [None, b"", b"x", "schön".encode(), chance.randbytes(300), b"long" * 3000]
    headers = [
        (),
        (("a", b"\xff\x00"), ("a", b""), ("ü", None)),
        tuple((f"h{i}", b"%d" % i) for i in range(20)),
    ]
    return [
        Record(value, key, index % partitions, 1_700_000_000_000 - 977 * index, headers[index % 3])
        for index, (key, value) in enumerate((k, v) for k in contents for v in contents)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_read_back_by_a_plain_client(any_version: KafkaCluster, codec: str) -> None:
    """
    Keys, values, headers, timestamps and partitions are read back equal with each codec.
    """
    name = any_version.create_topic(f"codec-{codec}", 3)
    rows = all_kinds(codec)
    batch = batch_of(rows)

    sliced = [batch[:7], batch[7:50], batch[50:50], batch[50:]]
    small: dict[str, str | int] = {"compression_type": codec, "batch_size": 20_000}
    assert write(any_version.bootstrap, sliced, name, "wire", **small) == len(rows)

    assert any_version.consume(name) == placed(rows)
    assert codecs_in_log(any_version, name) == {CODECS[codec]}


def codecs_in_log(kafka: KafkaCluster, topic: str) -> set[int]:
    """
    Return the codec numbers of a topic's record batches on the broker's disk.
    """
    return {
        int.from_bytes(batch[_ATTRIBUTES], "big") & 7
        for batch in stored_batches(kafka.data_folder(), topic)
    }


def test_timestamps(any_version: KafkaCluster) -> None:
    """
    A row without a timestamp gets the client's time, a row with one keeps it.
    """
    name = any_version.create_topic("time-of-writing")
    (before,) = any_version.produce(name, [Record()])
    write(any_version.bootstrap, [batch_of([Record(), Record(timestamp=1)])], name)
    (after,) = any_version.produce(name, [Record()])

    _, ours, explicit, _ = (r.timestamp for r in any_version.consume(name))
    assert explicit == 1
    assert before.timestamp <= ours <= after.timestamp  # type: ignore[operator]


def test_an_auto_created_topic(any_version: KafkaCluster) -> None:
    """
    If brokers auto-create topics, a writer waits for them as the Java client does.
    """
    rows = [Record(b"%d" % i, b"%d" % i) for i in range(50)]
    name = "made-by-writing"

    assert write(any_version.bootstrap, [batch_of(rows)], name) == 50

    records = any_version.consume(name)
    assert sorted(r.key or b"" for r in records) == sorted(r.key or b"" for r in rows)
    assert {r.partition for r in records} == {0, 1, 2}


def test_console_consumer_reads_every_codec(
    kafka_cluster: KafkaCluster, topic: Callable[..., str]
) -> None:
    """
    Kafka's console consumer prints the records written with each codec.
    """
    name = topic(partitions=2)
    written: list[Record] = []
    for index, codec in enumerate(CODECS):
        rows = [
            Record(b"v", f"{codec}-k".encode(), 0, 1_700_000_000_000 + index, (("a", b"1"),)),
            Record(None, f"{codec}-tombstone".encode(), 1, 1 + index, (("a", None), ("b", b""))),
            Record(b"", None, 1, 2 + index),
            Record(b"%d." % index * 2000, b"", 0, 3 + index),
        ]
        write(kafka_cluster.bootstrap, [batch_of(rows)], name, compression_type=codec)
        written += rows

    assert consume(kafka_cluster.bootstrap, name, len(written)) == placed(written)


@pytest.mark.side_by_side
def test_jvm_connector_reads_every_codec(
    agreed: Callable[..., list[Row]], kafka_cluster: KafkaCluster, topic: Callable[..., str]
) -> None:
    """
    Spark's JVM connector and both engines read the records written with each codec.
    """
    name = topic(partitions=3)
    written: list[Record] = []
    for codec in CODECS:
        rows = all_kinds(codec)
        write(kafka_cluster.bootstrap, [batch_of(rows)], name, compression_type=codec)
        written += rows

    consumed = [
        Record(
            value=row.value,
            key=row.key,
            partition=row.partition,
            timestamp=round(row.timestamp.timestamp() * 1000),
            headers=tuple((h.key, h.value) for h in row.headers or ()),
            offset=row.offset,
        )
        for row in agreed(subscribe=name, includeHeaders="true")
    ]
    assert [r if r.value is None else shortened(r) for r in consumed] == [
        r if r.value is None else shortened(r) for r in placed(written)
    ]


def shortened(record: Record) -> tuple[object, ...]:
    """
    Return the distinguishing parts of a record, for readable failures.
    """
    value = record.value or b""
    key = record.key if record.key is None else (len(record.key), record.key[:9])
    return (len(value), value[:9], key, record.partition, record.timestamp, record.headers)


# --- Partitions -----------------------------------------------------------------------------------


def keys_of_all_lengths() -> list[bytes]:
    """
    Return distinct keys of 0 to 40 bytes, and those with known hashes.
    """
    chance = random.Random(7)
    return [*MURMUR2, b"", *(chance.randbytes(1 + i % 40) for i in range(400))]


def partitions_by_key(kafka: KafkaCluster, topic: str) -> dict[bytes | None, int | None]:
    """
    Return the partition of each key.
    """
    return {record.key: record.partition for record in kafka.consume(topic)}


def test_partitions_of_keys(kafka_cluster: KafkaCluster, topic: Callable[..., str]) -> None:
    """
    Both engines choose the partition of a key as the Java client's murmur2 does, by hashes from
    Kafka's own tests.
    """
    keys = keys_of_all_lengths()
    batch = batch_of([Record(b"v", key) for key in keys])
    names = {engine: topic(partitions=MANY) for engine in ("wire", "librdkafka")}
    for engine, name in names.items():
        assert write(kafka_cluster.bootstrap, [batch], name, engine) == len(keys)

    ours, theirs = (partitions_by_key(kafka_cluster, name) for name in names.values())
    assert ours == theirs
    assert ours.keys() == set(keys)
    assert {key: ours[key] for key in MURMUR2} == {
        key: (murmur2_hash & 0x7FFF_FFFF) % MANY for key, murmur2_hash in MURMUR2.items()
    }


# test_partitions_of_keys has the hashes of Kafka's own tests.
@pytest.mark.soak
def test_partitions_of_keys_match_the_console_producer(
    kafka_cluster: KafkaCluster, topic: Callable[..., str]
) -> None:
    """
    Kafka's Java producer and the wire engine choose the same partition for each key, whether or not
    its bytes are ASCII.
    """
    chance = random.Random(7)
    # Alphabets of one, two and three bytes of UTF-8 per character.
    alphabets = ("abc01 -", "\u00e4\u00df\u03a9", "\u20ac\u4e2d\uffe5")
    texts = {"".join(chance.choices(alphabets[i % 3], k=1 + i % 40)) for i in range(400)}
    ours, theirs = topic(partitions=MANY), topic(partitions=MANY)
    records = [Record(b"v", text.encode()) for text in sorted(texts)]
    write(kafka_cluster.bootstrap, [batch_of(records)], ours)
    kafka_tool.run(
        "org.apache.kafka.tools.ConsoleProducer",
        *(kafka_cluster.bootstrap, "--topic", theirs),
        *("--reader-property", "parse.key=true", "--reader-property", "key.separator=|"),
        lines="".join(f"{text}|v\n" for text in sorted(texts)),
    )

    partitions = partitions_by_key(kafka_cluster, ours)
    assert partitions.keys() == {text.encode() for text in texts}
    assert partitions == partitions_by_key(kafka_cluster, theirs)


@pytest.mark.soak
@pytest.mark.side_by_side
def test_partitions_of_keys_match_the_jvm_sink(
    spark: SparkSession, kafka_cluster: KafkaCluster, topic: Callable[..., str]
) -> None:
    """
    Spark's JVM sink and the wire engine choose the same partition for each key.
    """
    keys = keys_of_all_lengths()
    ours, theirs = topic(partitions=MANY), topic(partitions=MANY)
    write(kafka_cluster.bootstrap, [batch_of([Record(b"v", key) for key in keys])], ours)
    frame = spark.createDataFrame([(key, "v") for key in keys], "key binary, value string")
    writer = frame.write.format("kafka").option("topic", theirs)
    # Spark gives queries with equal settings the same producer: this one has no earlier writes.
    writer = writer.option("kafka.client.id", theirs)
    with java_log_level(spark, "org.apache.kafka.clients", "DEBUG"):
        writer.option("kafka.bootstrap.servers", kafka_cluster.bootstrap).save()

    partitions = partitions_by_key(kafka_cluster, ours)
    assert partitions.keys() == set(keys)
    assert partitions == partitions_by_key(kafka_cluster, theirs)


@contextmanager
def java_log_level(spark: SparkSession, logger: str, level: str) -> Iterator[None]:
    """
    Let a logger of the driver's JVM write messages of a level, and afterwards only errors.
    """
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    log4j = jvm.org.apache.logging.log4j
    configurator = log4j.core.config.Configurator
    configurator.setLevel(logger, getattr(log4j.Level, level))
    try:
        yield
    finally:
        configurator.setLevel(logger, log4j.Level.ERROR)


def test_rows_without_a_key_use_the_sticky_partitioner(
    kafka_cluster: KafkaCluster, topic: Callable[..., str]
) -> None:
    """
    Rows without key and partition fill one partition's batch, then another's (KIP-480).
    """
    name = topic(partitions=4)
    rows = [Record(b"%05d" % i) for i in range(2000)]

    assert write(kafka_cluster.bootstrap, [batch_of(rows)], name, batch_size=1000) == 2000

    records = kafka_cluster.consume(name)
    assert sorted(r.value or b"" for r in records) == [r.value for r in rows]
    assert {r.partition for r in records} == {0, 1, 2, 3}


# --- Sizes ----------------------------------------------------------------------------------------


def in_order_per_key(records: list[Record]) -> dict[bytes | None, list[bytes | None]]:
    """
    Return the values of each key in the order of the log.
    """
    by_key: dict[bytes | None, list[bytes | None]] = {}
    for record in records:
        by_key.setdefault(record.key, []).append(record.value)
    return by_key


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_batches_are_split_until_they_fit(
    kafka_cluster: KafkaCluster, topic: Callable[..., str], codec: str
) -> None:
    """
    A topic that accepts only small batches gets every record, in order for each key.
    """
    name = topic(partitions=3, max_message_bytes=3000)
    chance = random.Random(3)
    rows = [Record(b"%05d" % i + chance.randbytes(100), b"k%d" % (i % 5)) for i in range(2000)]

    count = write(kafka_cluster.bootstrap, [batch_of(rows)], name, compression_type=codec)

    assert count == 2000
    assert in_order_per_key(kafka_cluster.consume(name)) == in_order_per_key(rows)


def test_the_first_batch_is_split_before_the_next_is_sent(
    kafka_cluster: KafkaCluster, topic: Callable[..., str]
) -> None:
    """
    All records arrive in order although the first batch is rejected: a partition without state for
    the producer would accept even the sequence number of the batch behind it (KAFKA-14359).
    """
    name = topic(max_message_bytes=3000)
    chance = random.Random(4)
    large = [Record(b"%05d" % i + chance.randbytes(500), b"k") for i in range(20)]
    small = [Record(b"%05d" % (20 + i), b"k") for i in range(1000)]
    batch = batch_of([*large, *small])

    write(kafka_cluster.bootstrap, [batch], name, batch_size=11_000, compression_type="zstd")

    values = [r.value for r in kafka_cluster.consume(name)]
    assert values == [r.value for r in [*large, *small]]


@at_once
@pytest.mark.parametrize("limit", ["ours", "the broker's"])
def test_a_too_large_record_fails_at_once(
    kafka_cluster: KafkaCluster, topic: Callable[..., str], limit: str
) -> None:
    """
    The error names the key and destination of a record beyond the limit, whichever side has the
    limit.
    """
    name = topic(partitions=2, max_message_bytes=3000 if limit != "ours" else 10_000_000)
    rows = [Record(b"v" * 50, b"small", 1) for _ in range(100)]
    rows.insert(50, Record(b"v" * 2_000_000, b"large", 1))
    larger_limit = {} if limit == "ours" else {"max_request_size": 9_000_000}

    with pytest.raises(RecordError, match="MSG_SIZE_TOO_LARGE") as caught:
        write(
            kafka_cluster.bootstrap, [batch_of(rows)], name, "wire", **LONG_TIMEOUTS, **larger_limit
        )
    message = f"the record with key b'large' for topic '{name}', partition 1 cannot be written"
    assert message in str(caught.value)
    assert "kafka.max.request.size" in str(caught.value)


def test_an_allowed_large_record(kafka_cluster: KafkaCluster, topic: Callable[..., str]) -> None:
    """
    A record larger than a batch gets its own batch, between the others.
    """
    name = topic(max_message_bytes=9_000_000)
    rows = [Record(b"a"), Record(b"x" * 8_000_000), Record(b"b")]

    write(kafka_cluster.bootstrap, [batch_of(rows)], name, max_request_size=9_000_000)

    values = [r.value for r in kafka_cluster.consume(name)]
    assert [len(value or b"") for value in values] == [1, 8_000_000, 1]
    assert values == [r.value for r in rows]


@pytest.mark.parametrize("partitions", [2, 100, pytest.param(500, marks=pytest.mark.soak)])
def test_buffer_smaller_than_the_data(
    kafka_cluster: KafkaCluster, topic: Callable[..., str], partitions: int
) -> None:
    """
    More data than the buffer holds is written, to few partitions or to many.
    """
    name = topic(partitions=partitions)
    rows = [Record(b"%07d" % i + b"." * 1000, b"k%d" % (i % 1500)) for i in range(6_000)]
    batch = batch_of(rows)

    batches = [batch[start : start + 2000] for start in range(0, len(rows), 2000)]
    assert write(kafka_cluster.bootstrap, batches, name, buffer_memory=262_144) == len(rows)

    records = kafka_cluster.consume(name)
    assert in_order_per_key(records) == in_order_per_key(rows)
    assert len({r.partition for r in records}) > partitions * 0.9


# --- Rejections -----------------------------------------------------------------------------------


@at_once
def test_a_compacted_topic_requires_keys(
    kafka_cluster: KafkaCluster, topic: Callable[..., str]
) -> None:
    """
    The broker's reason for rejecting a record is reported with its key and destination.
    """
    name = topic(partitions=2, cleanup_policy="compact")
    rows = [Record(b"v", b"k", 1), Record(b"v", None, 1), Record(b"v", b"l", 1)]

    with pytest.raises(RecordError, match="INVALID_RECORD") as caught:
        write(kafka_cluster.bootstrap, [batch_of(rows)], name, "wire", **LONG_TIMEOUTS)
    message = (
        f"the record with key None for topic '{name}', partition 1 cannot be written; the broker"
    )
    assert message in str(caught.value)
    assert "key" in str(caught.value).partition("the broker's message: ")[2]


@at_once
@pytest.mark.parametrize(
    ("row", "says"),
    [
        (
            Record(b"v", b"k", partition=2),
            r"\[UNKNOWN_PARTITION\] .* key b'k' for topic '.*', partition 2 .* partitions 0 to 1$",
        ),
        (Record(b"v", b"k", partition=-1), r"\[UNKNOWN_PARTITION\].*partition -1"),
        (Record(b"v", b"k", headers=((None, b"v"),)), r"NULL_HEADER_KEY"),  # type: ignore[arg-type]
        (Record(b"v", b"k", timestamp=0), r"INVALID_TIMESTAMP"),
        (Record(b"v", b"k", timestamp=-1), r"INVALID_TIMESTAMP"),
    ],
)
def test_bad_rows_fail_at_once(
    kafka_cluster: KafkaCluster, topic: Callable[..., str], row: Record, says: str
) -> None:
    """
    Both engines report a row that cannot become a record with the same error, and do not retry.
    """
    name = topic(partitions=2)
    batches = [batch_of([Record(b"good"), row])]
    messages = {}
    for engine in ("wire", "librdkafka"):
        with pytest.raises(RecordError, match=says) as caught:
            write(kafka_cluster.bootstrap, batches, name, engine, **LONG_TIMEOUTS)
        messages[engine] = str(caught.value)
    assert messages["wire"] == messages["librdkafka"]


@at_once
def test_null_topic_fails_at_once(kafka_cluster: KafkaCluster, topic: Callable[..., str]) -> None:
    """
    A row without a topic is reported by its number and key.
    """
    batch = batch_of([Record(b"v"), Record(b"v", b"k")], topic=[topic(), None])

    with pytest.raises(RecordError, match=r"NULL_TOPIC_IN_DATA\].*row 1 of a batch, with key b'k'"):
        write(kafka_cluster.bootstrap, [batch], None, "wire", **LONG_TIMEOUTS)


def test_topic_column_and_option(kafka_cluster: KafkaCluster, topic: Callable[..., str]) -> None:
    """
    Rows go to the topics of their column, in one call, and all to the option's topic if it is set.
    """
    names = [topic(), topic(partitions=3)]
    rows = [Record(b"%d" % i, b"k%d" % i) for i in range(100)]
    column = pa.array([names[i % 2] for i in range(100)])

    assert write(kafka_cluster.bootstrap, [batch_of(rows, topic=column)], None) == 100
    for index, name in enumerate(names):
        values = {r.value for r in kafka_cluster.consume(name)}
        assert values == {r.value for r in rows[index::2]}

    assert write(kafka_cluster.bootstrap, [batch_of(rows, topic=column)], names[0]) == 100
    assert len(kafka_cluster.consume(names[0])) == 150


@at_once
def test_a_missing_topic_fails_soon(kafka_cluster: KafkaCluster, topic: Callable[..., str]) -> None:
    """
    A missing topic is awaited for a moment only, and reported with one of its rows.
    """
    batch = batch_of([Record(b"v", b"k0"), Record(b"v", b"k1")], topic=[topic(), "nowhere"])

    with pytest.raises(UnknownTopicError) as caught:
        write(kafka_cluster.bootstrap, [batch], None, "wire", **LONG_TIMEOUTS)
    assert "the record with key b'k1' for topic 'nowhere' cannot be written" in str(caught.value)
    with pytest.raises(UnknownTopicError, match="topic 'nowhere' was not found within 300 ms"):
        write(kafka_cluster.bootstrap, [batch], "nowhere", max_block_ms=300)


@at_once
def test_an_invalid_topic_name(kafka_cluster: KafkaCluster) -> None:
    """
    The error shows a name that no topic can have.
    """
    with pytest.raises(PykafkaError, match="no such/topic"):
        write(
            kafka_cluster.bootstrap,
            [batch_of([Record(b"v")])],
            "no such/topic",
            "wire",
            **LONG_TIMEOUTS,
        )


def test_nothing_to_write(kafka_cluster: KafkaCluster) -> None:
    """
    No batches, or empty ones, cause no request: the topic need not even exist.
    """
    assert write(kafka_cluster.bootstrap, [], "nowhere") == 0
    assert write(kafka_cluster.bootstrap, [batch_of([])] * 2, "nowhere") == 0


# --- Permissions ----------------------------------------------------------------------------------


class Guarded(NamedTuple):
    """
    A broker with a TLS listener, SASL and ACLs; anonymous clients may do everything.
    """

    kafka: KafkaCluster
    settings: dict[str, str]

    def write(self, topic: str, **settings: str | int) -> int:
        """
        Write a row as the user who may write to the topic 'allowed' only.
        """
        return write("", [batch_of([Record(b"v")])], topic, "wire", **{**self.settings, **settings})


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    files = tmp_path_factory.mktemp("certificates")
    make_certificates(files)
    port, secure, controller = free_ports(3)
    listeners = f"CLIENT://localhost:{port},SCRAM://localhost:{secure}"
    config: dict[str, str | int | bool] = {
        "listeners": f"{listeners},CONTROLLER://localhost:{controller}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,SCRAM:SASL_SSL,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"1@localhost:{controller}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files / "broker.pem"),
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.scram.scram-sha-512.sasl.jaas.config": SCRAM_MODULE,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with KafkaCluster(config=config, port=port) as kafka:
        create_scram_users(kafka)
        user = login("SCRAM-SHA-512")
        for name in ("allowed", "seen", "hidden"):
            kafka.create_topic(name)
        allow(kafka, user["sasl_username"], "allowed", AclOperation.WRITE)
        allow(kafka, user["sasl_username"], "seen", AclOperation.DESCRIBE)
        options = {
            "bootstrap_servers": f"localhost:{secure}",
            "security_protocol": "SASL_SSL",
            "ssl_ca_location": str(files / "ca.pem"),
            **user,
        }
        yield Guarded(kafka, options)


def allow(kafka: KafkaCluster, user: str, topic: str, operation: AclOperation) -> None:
    """
    Grant a user an operation on a topic.
    """
    permission = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
    admin = kafka.admin()
    (future,) = admin.create_acls([permission]).values()
    future.result(30)


def test_tls_and_scram(guarded: Guarded) -> None:
    """
    Over TLS, authenticated by SCRAM, a row goes where the user may write.
    """
    assert guarded.write("allowed") == 1
    assert [r.value for r in guarded.kafka.consume("allowed")] == [b"v"]


@at_once
@pytest.mark.parametrize("topic", ["seen", "hidden"])
def test_a_forbidden_topic_fails_at_once(guarded: Guarded, topic: str) -> None:
    """
    Missing permission to write or to see the topic is reported as such, and not retried.
    """
    with pytest.raises(AuthorizationError, match=rf"{topic}.*TOPIC_AUTHORIZATION_FAILED") as caught:
        guarded.write(topic, **LONG_TIMEOUTS)
    assert not caught.value.retriable


@at_once
def test_a_user_without_any_permission(guarded: Guarded) -> None:
    """
    A user who may write nowhere gets no producer id, and the error says so.
    """
    nobody = login("SCRAM-SHA-512", "al=ice,canary")
    allow(guarded.kafka, nobody["sasl_username"], "seen", AclOperation.DESCRIBE)

    with pytest.raises(AuthorizationError, match="producer id.*CLUSTER_AUTHORIZATION_FAILED"):
        guarded.write("seen", **nobody, **LONG_TIMEOUTS)


@at_once
def test_a_forbidden_transactional_id_fails_at_once(guarded: Guarded) -> None:
    """
    A missing permission to describe a transaction is named, and not retried.
    """
    options = {f"kafka.{name.replace('_', '.')}": text for name, text in guarded.settings.items()}
    kafka = parse_sink(options, streaming=False).kafka

    rejection = pytest.raises(AuthorizationError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
    with transaction_client(kafka) as transactions, rejection:
        transactions.describe_all(["secret-1", "secret-2"])


def test_doctor_names_missing_permissions(
    guarded: Guarded, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """
    `pykafka doctor` reports the permissions that a query lacks, and what to allow.
    """
    file = tmp_path / "client.properties"
    pairs = {name.replace("_", "."): text for name, text in guarded.settings.items()}
    file.write_text("".join(f"{name}={text}\n" for name, text in pairs.items()))
    allow(guarded.kafka, guarded.settings["sasl_username"], "read", AclOperation.READ)
    guarded.kafka.create_topic("read")

    code = main(
        [
            *("doctor", "--json", "--command-config", str(file), "--group", "g", "--prefix", "p"),
            *("--read", "read", "--read", "seen", "--read", "hidden", "--write", "allowed"),
        ]
    )

    findings = json.loads(capsys.readouterr().out)["findings"]
    checks = {finding["check"]: finding for finding in findings}
    assert code == ExitCode.FAILED
    statuses = {name: finding["status"] for name, finding in checks.items()}
    ids = ("transactional ids p*", "ledger p-ledger")
    lacking = {"topic seen", "topic hidden", "group g", *ids}
    assert {name for name, status in statuses.items() if status == "failed"} == lacking
    assert (statuses["topic read"], statuses["topic allowed"]) == ("ok", "ok")
    assert checks["topic seen"]["advice"] == "allow READ on it"
    assert "SASL_SSL" in checks["login"]["text"]
    assert "password" not in json.dumps(findings)


def test_committed_offsets_need_permission_to_read_the_group(guarded: Guarded) -> None:
    """
    Without permission to read the group, the error names the group at once; librdkafka would retry
    forever.
    """
    options = {f"kafka.{name.replace('_', '.')}": text for name, text in guarded.settings.items()}
    committed = {
        "startingOffsets": "committed",
        "kafka.group.id": "secret-group",
        # Longer than a test may take.
        "kafka.default.api.timeout.ms": "3600000",
    }
    source = parse_stream_source({**options, **committed, "subscribe": "seen"})

    with pytest.raises(AuthorizationError, match="secret-group.*GROUP_AUTHORIZATION_FAILED"):
        metadata_client(source).committed_offsets([TopicPartition("seen", 0)])
