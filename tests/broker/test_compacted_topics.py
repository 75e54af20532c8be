"""
The latest record of each key on a real broker, compared with a dictionary that a plain client
fills.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.page_blocks import blocks_of

from pyspark_pykafka.spark.compat import SPARK_VERSION
from pyspark_pykafka.testing import KafkaCluster, Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from tests.broker.conftest import Load

ENGINES = ("wire", "librdkafka")
RECORDS, KEYS = 2_000, 300


@pytest.fixture
def accounts(topic: Callable[..., str], kafka_cluster: KafkaCluster) -> str:
    """
    Return a compacted topic of balances; one write in six is a tombstone.
    """
    draw = random.Random(7)
    name = topic(3, cleanup_policy="compact")
    records = []
    for number in range(RECORDS):
        account = draw.randrange(KEYS)
        value = json.dumps({"account": account, "balance": number}) if draw.randrange(6) else None
        text = None if value is None else value.encode()
        records.append(Record(text, key=b"%d" % account, partition=account % 3))
    kafka_cluster.produce(name, records)
    return name


@pytest.fixture
def state(accounts: str, kafka_cluster: KafkaCluster) -> dict[bytes, bytes]:
    """
    Return the value of each key that is not deleted.
    """
    values: dict[bytes, bytes | None] = {}
    for record in kafka_cluster.consume(accounts):
        assert record.key is not None
        values[record.key] = record.value
    return {key: value for key, value in values.items() if value is not None}


def sorted_rows(frame: DataFrame) -> list[Any]:
    """
    Return the keys and values of the rows, sorted.
    """
    return sorted(
        (bytes(row.key), bytes(row.value)) for row in frame.select("key", "value").collect()
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_each_key_that_is_not_deleted_has_one_row(
    load: Load, accounts: str, state: dict[bytes, bytes], engine: str
) -> None:
    """
    Both engines return the rows that a dictionary would hold, even through a shuffle and a join.
    """
    frame = load(subscribe=accounts, latestPerKey="true", engine=engine)

    assert 0 < len(state) < KEYS
    assert sorted_rows(frame) == sorted(state.items())
    assert frame.join(frame.select("key"), "key").count() == len(state)


def test_values_are_decoded_after_the_latest_are_selected(
    load: Load, accounts: str, state: dict[bytes, bytes]
) -> None:
    """
    Typed columns are decoded from the latest record of each key, even if the key is not selected.
    """
    frame = load(
        subscribe=accounts,
        latestPerKey="true",
        valueFormat="json",
        valueSchema="account INT, balance INT",
        flatten="true",
    ).select("account", "balance")

    expected = [json.loads(value) for value in state.values()]
    assert sorted(map(tuple, frame.collect())) == sorted(
        (value["account"], value["balance"]) for value in expected
    )


@pytest.mark.skipif(SPARK_VERSION < (4, 1), reason="Spark 4.0 pushes no filters down")
def test_a_filter_does_not_choose_older_records(
    spark: SparkSession, load: Load, accounts: str
) -> None:
    """
    A filter applies only to the latest records; if it were pushed down, an older record could
    become the latest of its key.
    """
    frame = load(subscribe=accounts, latestPerKey="true")
    expected = frame.collect()
    middle = sorted(row.offset for row in expected)[len(expected) // 2]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        options = {"latestPerKey": "true", "pushDownFilters": "true"}
        rows = load(subscribe=accounts, **options).where(f"offset < {middle} AND partition = 1")
        offsets = sorted(row.offset for row in rows.collect())
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")

    assert offsets == sorted(r.offset for r in expected if r.offset < middle and r.partition == 1)
    assert offsets


# test_pasted_pages.py runs it, too.
@pytest.mark.soak
def test_the_example_of_the_page(
    spark: SparkSession,
    accounts: str,
    state: dict[bytes, bytes],
    kafka_cluster: KafkaCluster,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """
    The page's example runs unchanged, except for the address and the topic.
    """
    (block,) = blocks_of("docs/compacted-topics.md")
    text = block.text.replace("broker:9092", kafka_cluster.bootstrap)
    names: dict[str, Any] = {"spark": spark}
    exec(text.replace('"accounts")', f'"{accounts}")'), names)  # noqa: S102 (our own page)

    assert names["accounts"].count() == len(state)
    assert "balance" in capsys.readouterr().out


@pytest.mark.parametrize("engine", ENGINES)
def test_aborted_records_hide_no_committed_ones(
    load: Load,
    topic: Callable[..., str],
    transaction: Callable[[], Any],
    settled: Callable[[str], None],
    engine: str,
) -> None:
    """
    Each key has its latest committed record; a key with aborted records only has no row.
    """
    name = topic(cleanup_policy="compact")
    with transaction() as producer:
        producer.produce(name, key="a", value="committed")
        producer.commit_transaction(30)
        producer.begin_transaction()
        producer.produce(name, key="a", value="aborted")
        producer.produce(name, key="b", value="aborted")
        producer.flush(30)
        producer.abort_transaction(30)
        settled(name)
        producer.begin_transaction()

    frame = load(subscribe=name, latestPerKey="true", engine=engine)

    assert sorted_rows(frame) == [(b"a", b"committed")]


def test_a_record_without_a_key_ends_the_query(
    load: Load, topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    The error names the record and the option.
    """
    name = topic()
    kafka_cluster.produce(name, [Record(b"1", key=b"a"), Record(b"2")])

    with pytest.raises(Exception, match=f"offset 1 of {name}-0 has no key, but latestPerKey"):
        load(subscribe=name, latestPerKey="true").collect()
