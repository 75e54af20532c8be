"""
Batch reads compared with Spark's JVM connector: equal options give equal DataFrames.
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

T0 = 1_700_000_000_000


@pytest.fixture
def filled(kafka_cluster: KafkaCluster, topic: Callable[..., str]) -> str:
    """
    Return a topic of three partitions with ten records each, one second apart.
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


def offsets(topic: str, *values: int) -> str:
    """
    Return the JSON with an offset (or a timestamp) for each partition of a topic.
    """
    return json.dumps({topic: {str(p): value for p, value in enumerate(values)}})


def test_defaults(filled: str, agreed: Callable[..., list[Row]]) -> None:
    """
    By default a batch reads from earliest to latest, with the JVM connector's columns.
    """
    assert len(agreed(subscribe=filled)) == 30


# test_source_options.py reads these options in any case.
@pytest.mark.soak
def test_earliest_and_latest_in_any_case(filled: str, agreed: Callable[..., list[Row]]) -> None:
    """
    Upper and lower case of earliest and latest mean the same.
    """
    rows = agreed(subscribe=filled, startingOffsets="EarLiest", endingOffsets="laTest")
    assert len(rows) == 30


def test_specific_offsets(filled: str, agreed: Callable[..., list[Row]]) -> None:
    """
    Offsets, -1 and -2 can be mixed by partition.
    """
    rows = agreed(
        subscribe=filled,
        startingOffsets=offsets(filled, 3, -2, 9),
        endingOffsets=offsets(filled, 5, 1, -1),
    )
    assert [(r.partition, r.offset) for r in rows] == [(0, 3), (0, 4), (1, 0), (2, 9)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({"startingTimestamp": T0 + 8000}, 6, marks=pytest.mark.soak),
        pytest.param({"endingTimestamp": T0 + 2000}, 6, marks=pytest.mark.soak),
        ({"startingTimestamp": T0 + 1000, "endingTimestamp": T0 + 2000}, 3),
        pytest.param(
            {"startingTimestamp": T0 + 1500, "endingTimestamp": T0 + 999_000},
            24,
            marks=pytest.mark.soak,
        ),
        ({"startingTimestamp": T0 + 8000, "startingOffsets": "earliest"}, 6),
    ],
)
def test_global_timestamps(
    filled: str, agreed: Callable[..., list[Row]], options: dict[str, Any], expected: int
) -> None:
    """
    A timestamp sets the start, the end or both, and takes precedence over offsets.
    """
    assert len(agreed(subscribe=filled, **options)) == expected


def test_timestamps_per_partition(filled: str, agreed: Callable[..., list[Row]]) -> None:
    """
    Start timestamps by partition can be mixed with end offsets.
    """
    rows = agreed(
        subscribe=filled,
        startingOffsetsByTimestamp=offsets(filled, T0 + 7000, T0 + 8000, T0),
        endingOffsets=offsets(filled, -1, -1, 1),
    )
    assert [(r.partition, r.offset) for r in rows] == [
        (0, 7), (0, 8), (0, 9), (1, 8), (1, 9), (2, 0),
    ]  # fmt: skip


def test_unmatched_start_with_strategy_latest(
    filled: str, agreed: Callable[..., list[Row]]
) -> None:
    """
    With the strategy latest a time after all records starts at the end.
    """
    options = {"startingOffsetsByTimestampStrategy": "latest", "startingTimestamp": T0 + 10**6}
    assert agreed(subscribe=filled, **options) == []


def test_pattern_is_found_anywhere_in_the_name(
    topic: Callable[..., str], kafka_cluster: KafkaCluster, agreed: Callable[..., list[Row]]
) -> None:
    """
    A pattern matches anywhere in a topic's name, as in the JVM connector.
    """
    names = [topic(), topic()]
    for name in names:
        kafka_cluster.produce(name, [Record(b"x")])

    assert {r.topic for r in agreed(subscribePattern=names[0][3:-1])} >= {names[0]}
    assert [r.topic for r in agreed(subscribePattern=f"^{names[1]}$")] == [names[1]]


def test_assign(filled: str, agreed: Callable[..., list[Row]]) -> None:
    """
    Only the assigned partitions are read; missing ones are ignored.
    """
    rows = agreed(assign=json.dumps({filled: [0, 2, 7]}))
    assert {r.partition for r in rows} == {0, 2}


@pytest.mark.parametrize("include", ["true", "false"])
def test_headers(
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    agreed: Callable[..., list[Row]],
    include: str,
) -> None:
    """
    No, many, repeated, null and empty headers are read as by the JVM connector.
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
    Null and empty keys and values stay distinct, tombstones included.
    """
    name = topic()
    contents = [None, b"", b"x"]
    kafka_cluster.produce(name, [Record(v, k) for k in contents for v in contents])

    rows = agreed(subscribe=name)

    assert [(r.key, r.value) for r in rows] == [(k, v) for k in contents for v in contents]


# test_engines.py reads each codec with both engines.
@pytest.mark.parametrize(
    "codec",
    [
        "zstd",
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("none", "gzip", "snappy", "lz4")),
    ],
)
def test_codecs(
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    agreed: Callable[..., list[Row]],
    codec: str,
) -> None:
    """
    Records of each of Kafka's codecs are read correctly.
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
    Records from 0 bytes to 8 MB are read completely.
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
    Committed, aborted and open transactions are read alike at both isolation levels.
    """
    name = topic()
    options = {"subscribe": name, "kafka.isolation.level": isolation}
    reads_aborted = isolation == "read_uncommitted"
    with transaction() as producer:
        produce(producer, name, "committed")
        producer.commit_transaction(30)
        settled(name)
        assert len(agreed(**options)) == 3
        producer.begin_transaction()
        produce(producer, name, "aborted")
        producer.abort_transaction(30)
        settled(name)
        assert len(agreed(**options)) == (6 if reads_aborted else 3)
        producer.begin_transaction()
        produce(producer, name, "open")
        rows = agreed(**options)
        assert [r.value for r in rows[3:]].count(b"open") == (3 if reads_aborted else 0)


def produce(producer: Producer, name: str, value: str) -> None:
    """
    Write the value three times, and wait for the acknowledgements.
    """
    for _ in range(3):
        producer.produce(name, value=value)
    assert producer.flush(30) == 0


def test_compacted_topic(
    topic: Callable[..., str], kafka_cluster: KafkaCluster, agreed: Callable[..., list[Row]]
) -> None:
    """
    Gaps of compaction are skipped without an error, even at the ends of a range.
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
        # The last segment is cleaned only after a new one has been rolled.
        kafka_cluster.produce(name, [Record(b"last", b"roll")])
        return len(kafka_cluster.consume(name)) < 40

    for batch in range(10):
        kafka_cluster.produce(name, [Record(b"%d" % batch, b"k%d" % i) for i in range(10)])
    wait_for(compacted, seconds=60)
    # Ten keys, and the last records of the rolled and the active segment: the cleaner is done.
    wait_for(lambda: len(kafka_cluster.consume(name)) <= 12, seconds=60)

    log_start = min(r.offset for r in agreed(subscribe=name))
    agreed(
        subscribe=name, startingOffsets=offsets(name, 3), endingOffsets=offsets(name, log_start + 1)
    )


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    """
    Wait until the condition holds; fail after ``seconds``.
    """
    import time

    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not met within {seconds} s"
        time.sleep(0.2)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.soak),
        pytest.param({"minPartitions": 2}, marks=pytest.mark.soak),
        {"minPartitions": 7},
        {"minPartitions": 7, "maxRecordsPerPartition": 4},
    ],
)
def test_splits_are_those_of_the_jvm_connector(
    filled: str, load: Callable[..., Any], agreed: Callable[..., list[Row]], options: dict[str, int]
) -> None:
    """
    The same options give as many tasks, and the same rows, as the JVM connector.
    """
    counts = [
        load(connector, subscribe=filled, **options).rdd.getNumPartitions()
        for connector in ("kafka", "pykafka")
    ]
    assert counts[1] == counts[0]
    assert len(agreed(subscribe=filled, **options)) == 30


#: Options that are wrong whatever the topic has. The tests in tests/unit/options check that the
#: connector rejects them.
WRONG_BY_THEMSELVES: list[dict[str, str]] = [
    {"endingOffsets": "earliest"},
    {"startingOffsets": '{"%s":{"0":-1,"1":0,"2":0}}'},
    {"endingOffsets": '{"%s":{"0":-2,"1":0,"2":0}}'},
    {"assign": ""},
    {"subscribe": ""},
    {"minPartitions": "1.0"},
    {"minPartitions": "0"},
    {"minPartitions": "-1"},
    {"kafka.group.id": "g", "kafka.auto.offset.reset": "latest"},
    {"kafka.interceptor.classes": "x"},
    {"kafka.key.deserializer": "x"},
    {"kafka.value.deserializer": "x"},
    {"kafka.isolation.level": "intermittent"},
]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"%s":{"0":0}}'},
        {
            "startingOffsets": '{"%s":{"0":5,"1":0,"2":0}}',
            "endingOffsets": '{"%s":{"0":2,"1":1,"2":1}}',
        },
        {"startingTimestamp": str(T0 + 10**6)},
        {"subscribePattern": "x"},
        {"minPartitions": "a"},
        {"kafka.enable.auto.commit": "false"},
        {"subscribe": "a-topic-that-is-not-there"},
        *(pytest.param(wrong, marks=pytest.mark.soak) for wrong in WRONG_BY_THEMSELVES),
    ],
    ids=lambda o: " ".join(o) or "no strategy",
)
def test_both_connectors_refuse(
    filled: str, load: Callable[..., Any], options: dict[str, str]
) -> None:
    """
    Options that the JVM connector rejects are rejected by pykafka as well.
    """
    refused = {k: v.replace("%s", filled) for k, v in options.items()}
    if options and "assign" not in refused:
        refused.setdefault("subscribe", filled)
    for connector in ("kafka", "pykafka"):
        with pytest.raises(Exception, match=r"\w"):
            load(connector, **refused).count()
