"""
Batch reads beside Spark's own JVM connector: equal options must give equal DataFrames.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from pyspark_pykafka.testing import KafkaCluster, Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Row

pytestmark = pytest.mark.side_by_side

Agreed = "Callable[..., list[Row]]"
T0 = 1_700_000_000_000


@pytest.fixture
def filled(kafka_cluster: KafkaCluster, topic: Callable[..., str]) -> str:
    """
    A topic of three partitions with ten records each, a second apart.
    """
    name = topic(partitions=3)
    kafka_cluster.produce(
        name,
        [
            Record(f"{p}-{i}".encode(), f"k{i % 4}".encode(), p, T0 + i * 1000)
            for p in range(3)
            for i in range(10)
        ],
    )
    return name


def offsets(topic: str, *of: int) -> str:
    """
    Return the JSON that names an offset (or a time) for each partition of a topic.
    """
    return json.dumps({topic: {str(p): o for p, o in enumerate(of)}})


def test_defaults(filled: str, agreed: Callable[..., list[Row]]) -> None:
    """
    Everything from earliest to latest, with the columns and types of the JVM connector (R02).
    """
    assert len(agreed(subscribe=filled)) == 30


def test_words(filled: str, agreed: Callable[..., list[Row]]) -> None:
    """
    The words in any case mean the same (R01).
    """
    found = agreed(subscribe=filled, startingOffsets="EarLiest", endingOffsets="laTest")
    assert len(found) == 30


def test_specific_offsets(filled: str, agreed: Callable[..., list[Row]]) -> None:
    """
    Numbers and the words' numbers mix, per partition (R03).
    """
    found = agreed(
        subscribe=filled,
        startingOffsets=offsets(filled, 3, -2, 9),
        endingOffsets=offsets(filled, 5, 1, -1),
    )
    assert [(r.partition, r.offset) for r in found] == [(0, 3), (0, 4), (1, 0), (2, 9)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingTimestamp": T0 + 8000}, 6),
        ({"endingTimestamp": T0 + 2000}, 6),
        ({"startingTimestamp": T0 + 1000, "endingTimestamp": T0 + 2000}, 3),
        ({"startingTimestamp": T0 + 1500, "endingTimestamp": T0 + 999_000}, 24),
        ({"startingTimestamp": T0 + 8000, "startingOffsets": "earliest"}, 6),
    ],
)
def test_global_timestamps(
    filled: str, agreed: Callable[..., list[Row]], options: dict[str, Any], expected: int
) -> None:
    """
    One time for all partitions, open at either side, and it wins over offsets (R05-R13).
    """
    assert len(agreed(subscribe=filled, **options)) == expected


def test_timestamps_per_partition(filled: str, agreed: Callable[..., list[Row]]) -> None:
    """
    Times per partition, mixed with an end by offset (R06).
    """
    found = agreed(
        subscribe=filled,
        startingOffsetsByTimestamp=offsets(filled, T0 + 7000, T0 + 8000, T0),
        endingOffsets=offsets(filled, -1, -1, 1),
    )
    assert [(r.partition, r.offset) for r in found] == [
        (0, 7), (0, 8), (0, 9), (1, 8), (1, 9), (2, 0),
    ]  # fmt: skip


def test_unmatched_start_with_strategy_latest(
    filled: str, agreed: Callable[..., list[Row]]
) -> None:
    """
    A time after every record starts at the end where the strategy says so.
    """
    options = {"startingOffsetsByTimestampStrategy": "latest", "startingTimestamp": T0 + 10**6}
    assert agreed(subscribe=filled, **options) == []


def test_pattern_is_found_anywhere_in_the_name(
    topic: Callable[..., str], kafka_cluster: KafkaCluster, agreed: Callable[..., list[Row]]
) -> None:
    """
    A pattern selects the topics in whose names it is found, as the JVM connector does it.
    """
    names = [topic(), topic()]
    for name in names:
        kafka_cluster.produce(name, [Record(b"x")])

    assert {r.topic for r in agreed(subscribePattern=names[0][3:-1])} >= {names[0]}
    assert [r.topic for r in agreed(subscribePattern=f"^{names[1]}$")] == [names[1]]


def test_assign(filled: str, agreed: Callable[..., list[Row]]) -> None:
    """
    Only the named partitions are read; ones that do not exist are passed over (O40, O41).
    """
    found = agreed(assign=json.dumps({filled: [0, 2, 7]}))
    assert {r.partition for r in found} == {0, 2}


@pytest.mark.parametrize("include", ["true", "false"])
def test_headers(
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    agreed: Callable[..., list[Row]],
    include: str,
) -> None:
    """
    None, several, repeated, null and empty headers come through alike (R04, F28).
    """
    name = topic()
    many = tuple((f"h{i}", b"%d" % i) for i in range(1000))
    kafka_cluster.produce(
        name,
        [
            Record(b"none"),
            Record(b"some", headers=(("a", b"1"), ("b", None), ("a", b""), ("c", b"\xff"))),
            Record(b"many", headers=many),
        ],
    )
    assert len(agreed(subscribe=name, includeHeaders=include)) == 3


def test_null_and_empty_keys_and_values(
    topic: Callable[..., str], kafka_cluster: KafkaCluster, agreed: Callable[..., list[Row]]
) -> None:
    """
    Null stays null and empty stays empty, in keys and in values, tombstones included (F27).
    """
    name = topic()
    both = [None, b"", b"x"]
    kafka_cluster.produce(name, [Record(v, k) for k in both for v in both])

    found = agreed(subscribe=name)

    assert [(r.key, r.value) for r in found] == [(k, v) for k in both for v in both]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs(
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    agreed: Callable[..., list[Row]],
    codec: str,
) -> None:
    """
    Every codec of Kafka's reads back equal.
    """
    name = topic()
    producer = Producer(
        {"bootstrap.servers": kafka_cluster.bootstrap, "compression.type": codec, "linger.ms": 50}
    )
    for i in range(500):
        producer.produce(name, key=str(i), value=b"abc" * i)
    assert producer.flush(30) == 0

    assert [len(r.value) for r in agreed(subscribe=name)] == [3 * i for i in range(500)]


def test_sizes_up_to_8_mb(
    topic: Callable[..., str], kafka_cluster: KafkaCluster, agreed: Callable[..., list[Row]]
) -> None:
    """
    Records from nothing to 8 MB are read whole.
    """
    name = topic(**{"max.message.bytes": "9000000"})
    sizes = [0, 1, 1000, 1_048_576, 8 * 1024 * 1024]
    producer = Producer(
        {"bootstrap.servers": kafka_cluster.bootstrap, "message.max.bytes": 9_000_000}
    )
    for size in sizes:
        producer.produce(name, value=bytes(size))
    assert producer.flush(60) == 0

    assert [len(r.value) for r in agreed(subscribe=name)] == sizes


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_transactions(
    topic: Callable[..., str],
    agreed: Callable[..., list[Row]],
    transaction: Callable[[], Any],
    settled: Callable[[str], None],
    isolation: str,
) -> None:
    """
    Committed, aborted and open transactions under both isolation levels (R17, R18, F23, F24).
    """
    name = topic()
    options = {"subscribe": name, "kafka.isolation.level": isolation}
    seen = isolation == "read_uncommitted"
    with transaction() as producer:
        produce(producer, name, "committed")
        producer.commit_transaction(30)
        settled(name)
        assert len(agreed(**options)) == 3
        producer.begin_transaction()
        produce(producer, name, "aborted")
        producer.abort_transaction(30)
        settled(name)
        assert len(agreed(**options)) == (6 if seen else 3)
        producer.begin_transaction()
        produce(producer, name, "open")
        found = agreed(**options)
        assert [r.value for r in found[3:]].count(b"open") == (3 if seen else 0)


def produce(producer: Producer, name: str, value: str) -> None:
    """
    Write the value three times and see it acknowledged.
    """
    for _ in range(3):
        producer.produce(name, value=value)
    assert producer.flush(30) == 0


def test_compacted_topic(
    topic: Callable[..., str], kafka_cluster: KafkaCluster, agreed: Callable[..., list[Row]]
) -> None:
    """
    Holes that compaction left are passed over in silence, at the range's borders too (F22).
    """
    name = topic(
        **{
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.0001",
            "segment.ms": "100",
            "min.compaction.lag.ms": "0",
            "max.compaction.lag.ms": "100",
            "delete.retention.ms": "0",
        }
    )

    def compacted() -> bool:
        # A new segment must follow for the last one to be cleaned.
        kafka_cluster.produce(name, [Record(b"last", b"roll")])
        return len(kafka_cluster.consume(name)) < 40

    for batch in range(10):
        kafka_cluster.produce(name, [Record(b"%d" % batch, b"k%d" % i) for i in range(10)])
    wait_for(compacted, seconds=60)
    # Ten keys, and the last one of the rolled and of the active segment: the cleaner has ended.
    wait_for(lambda: len(kafka_cluster.consume(name)) <= 12, seconds=60)

    low = min(r.offset for r in agreed(subscribe=name))
    agreed(subscribe=name, startingOffsets=offsets(name, 3), endingOffsets=offsets(name, low + 1))


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    """
    Wait until a condition that asks a broker holds, or fail.
    """
    import time

    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not so within {seconds} s"
        time.sleep(0.2)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"minPartitions": 2},
        {"minPartitions": 7},
        {"minPartitions": 7, "maxRecordsPerPartition": 4},
    ],
)
def test_splits_are_the_jvm_connectors(
    filled: str, load: Callable[..., Any], agreed: Callable[..., list[Row]], options: dict[str, int]
) -> None:
    """
    The same options cut the topic into as many tasks, and give the same rows (R19, M30).
    """
    counts = [
        load(connector, subscribe=filled, **options).rdd.getNumPartitions()
        for connector in ("kafka", "pykafka")
    ]
    assert counts[1] == counts[0]
    assert len(agreed(subscribe=filled, **options)) == 30


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"startingOffsets": "latest"},
        {"endingOffsets": "earliest"},
        {"startingOffsets": '{"%s":{"0":-1,"1":0,"2":0}}'},
        {"endingOffsets": '{"%s":{"0":-2,"1":0,"2":0}}'},
        {"startingOffsets": '{"%s":{"0":0}}'},
        {
            "startingOffsets": '{"%s":{"0":5,"1":0,"2":0}}',
            "endingOffsets": '{"%s":{"0":2,"1":1,"2":1}}',
        },
        {"startingTimestamp": str(T0 + 10**6)},
        {"subscribePattern": "x"},
        {"assign": ""},
        {"subscribe": ""},
        {"minPartitions": "a"},
        {"minPartitions": "1.0"},
        {"minPartitions": "0"},
        {"minPartitions": "-1"},
        {"kafka.group.id": "g", "kafka.auto.offset.reset": "latest"},
        {"kafka.enable.auto.commit": "false"},
        {"kafka.interceptor.classes": "x"},
        {"kafka.key.deserializer": "x"},
        {"kafka.value.deserializer": "x"},
        {"kafka.isolation.level": "intermittent"},
        {"subscribe": "a-topic-that-is-not-there"},
    ],
    ids=lambda o: " ".join(o) or "no strategy",
)
def test_both_refuse(filled: str, load: Callable[..., Any], options: dict[str, str]) -> None:
    """
    What the JVM connector refuses is refused here too (R16, S37, M30, O07).
    """
    given = {k: v.replace("%s", filled) for k, v in options.items()}
    if options and "assign" not in given:
        given.setdefault("subscribe", filled)
    for connector in ("kafka", "pykafka"):
        with pytest.raises(Exception, match=r"\w"):
            load(connector, **given).count()
