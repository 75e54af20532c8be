"""
Streams whose sink rejects some records: those are set aside, all others arrive once.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.streams import SECONDS

from pyspark_pykafka.cli import main
from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.failures.bisection import PoisonPolicy
from pyspark_pykafka.failures.dead_letters import DeadLetterTopic
from pyspark_pykafka.failures.foreach_batch import isolate_poison
from pyspark_pykafka.testing import KafkaCluster, Record
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pyspark_pykafka.testing.plugin import TopicFactory


@dataclass
class Sink:
    """
    A sink that accepts a set of rows completely or not at all: none with a bad value, and none
    during an outage.
    """

    bad: set[str] = field(default_factory=set)
    down: bool = False
    accepted: Counter[str] = field(default_factory=Counter)
    runs: int = 0

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self.runs += 1
        if self.down:
            msg = "the sink is down"
            raise ConnectionError(msg)
        values = [row[0] for row in frame.selectExpr("cast(value as string)").collect()]
        rejected = sorted(self.bad.intersection(values))
        if rejected:
            msg = f"batch {batch} cannot take {rejected[0]}"
            raise ValueError(msg)
        self.accepted.update(values)


class CastingSink(Sink):
    """
    A sink whose tasks cast the values to numbers.
    """

    def __call__(self, frame: DataFrame, _: int) -> None:
        rows = frame.selectExpr("cast(value as string) text", "int(cast(value as string)) number")
        self.accepted.update(row["text"] for row in rows.collect())


@dataclass
class StuckSink(Sink):
    """
    A sink whose first run fails, and whose later runs take longer than the test.
    """

    def __call__(self, frame: DataFrame, _: int) -> None:
        self.runs += 1
        if self.runs == 1:
            msg = "cannot take it"
            raise ValueError(msg)
        frame.selectExpr("java_method('java.lang.Thread', 'sleep', 600000L)").collect()


@dataclass
class Job:
    """
    A stream of one topic into a sink, with a dead-letter topic.
    """

    spark: SparkSession
    options: dict[str, str]
    letters: str
    checkpoint: str
    sink: Sink

    def run(self, policy: PoisonPolicy = PoisonPolicy(), columns: tuple[str, ...] = ("*",)) -> None:
        """
        Read all available records; raise the query's error.
        """
        assert self.start(policy, columns).awaitTermination(SECONDS), "the query did not end"

    def start(
        self, policy: PoisonPolicy = PoisonPolicy(), columns: tuple[str, ...] = ("*",)
    ) -> StreamingQuery:
        """
        Start to read all available records.
        """
        dead_letter = DeadLetterTopic(self.letters, self.options)
        frame = self.spark.readStream.format("pykafka").options(**self.options).load()
        return (
            frame.selectExpr(*columns)
            .writeStream.foreachBatch(isolate_poison(self.sink, dead_letter, policy))
            .option("checkpointLocation", self.checkpoint)
            .trigger(availableNow=True)
            .start()
        )


@pytest.fixture
def make_job(
    spark: SparkSession, kafka_cluster: KafkaCluster, topic: TopicFactory, checkpoint: str
) -> Callable[..., Job]:
    """
    Return a function that creates a job for a topic of three partitions with these records.
    """

    def make(records: list[Record], *bad: str, **options: Any) -> Job:
        name, letters = topic(3), topic(1)
        kafka_cluster.produce(name, records)
        source_options = {
            "kafka.bootstrap.servers": kafka_cluster.bootstrap,
            "subscribe": name,
            "startingOffsets": "earliest",
            **options,
        }
        return Job(spark, source_options, letters, checkpoint, Sink(set(bad)))

    return make


def numbered(count: int, **fields: Any) -> list[Record]:
    """
    Return records whose values are their numbers.
    """
    return [Record(b"%04d" % n, b"key %d" % n, **fields) for n in range(count)]


def headers_of(letter: Record) -> dict[str, str]:
    """
    Return the connector's headers of a dead letter.
    """
    return {
        name.removeprefix("pykafka.deadletter."): (value or b"").decode()
        for name, value in letter.headers or []
        if name.startswith("pykafka.deadletter.")
    }


@pytest.mark.smoke
def test_poison_is_set_aside_and_other_records_arrive_once(
    make_job: Callable[..., Job], kafka_cluster: KafkaCluster
) -> None:
    """
    A plain consumer reads each poison record whole, with the reason; all other records arrive once.
    """
    original_headers = [("trace", b"1"), ("trace", None), ("empty", b"")]
    job = make_job(numbered(12, headers=original_headers), "0003", "0009")

    job.run()

    good = {f"{n:04}" for n in range(12)} - {"0003", "0009"}
    assert job.sink.accepted == Counter(good)
    letters = sorted(kafka_cluster.consume(job.letters), key=lambda letter: letter.value or b"")
    assert [(letter.key, letter.value) for letter in letters] == [
        (b"key 3", b"0003"),
        (b"key 9", b"0009"),
    ]
    assert [list(letter.headers or [])[:3] for letter in letters] == [
        original_headers,
        original_headers,
    ]
    originals = {r.value: r for r in kafka_cluster.consume(job.options["subscribe"])}
    for letter in letters:
        reason, original = headers_of(letter), originals[letter.value]
        assert reason["topic"] == job.options["subscribe"]
        assert (reason["batch"], reason["attempts"]) == ("0", "2")
        assert (int(reason["partition"]), int(reason["offset"])) == (
            original.partition,
            original.offset,
        )
        assert reason["error.class"] == "builtins.ValueError"
        assert reason["error.message"] == f"batch 0 cannot take {(letter.value or b'').decode()}"


@pytest.mark.parametrize(
    "text",
    [
        "at x.y java.lang.InterruptedException: [SPARK_JOB_CANCELLED] Job 7 cancelled",
        "pyspark_pykafka.errors.BrokerUnavailableError: no broker answers",
    ],
)
def test_poison_with_the_text_of_an_error_is_set_aside(
    make_job: Callable[..., Job], kafka_cluster: KafkaCluster, text: str
) -> None:
    """
    Spark's error quotes the record that it cannot cast. If the record's text names a stop or an
    outage, it is a poison record all the same.
    """
    job = make_job([Record(text.encode()), *numbered(5)])
    job.sink = CastingSink()

    job.run()

    assert [letter.value for letter in kafka_cluster.consume(job.letters)] == [text.encode()]
    assert job.sink.accepted == Counter(f"{n:04}" for n in range(5))


def test_stopped_query_sets_nothing_aside(
    spark: SparkSession,
    make_job: Callable[..., Job],
    kafka_cluster: KafkaCluster,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    `query.stop()` cancels the job of a part of the batch: the query ends without an error, and its
    records are read again.
    """
    job = make_job(numbered(20))
    job.sink = StuckSink()
    tracker = spark.sparkContext.statusTracker()

    def stuck() -> str | None:
        return None if job.sink.runs == 2 and tracker.getActiveJobsIds() else "no part is stuck"

    query = job.start()
    wait_until(stuck, SECONDS)
    query.stop()

    assert query.exception() is None
    assert "The query is being stopped; the batch fails and no record is set aside" in caplog.text
    assert kafka_cluster.consume(job.letters) == []
    assert job.sink.runs == 2


def test_query_continues_after_poison(
    make_job: Callable[..., Job], kafka_cluster: KafkaCluster
) -> None:
    """
    The next run starts after the batch, and sets nothing aside again.
    """
    job = make_job(numbered(6), "0003")
    job.run()
    kafka_cluster.produce(job.options["subscribe"], [Record(b"next")])

    job.run()

    assert job.sink.accepted["next"] == 1
    assert max(job.sink.accepted.values()) == 1
    assert len(kafka_cluster.consume(job.letters)) == 1


def test_outage_of_the_sink_sets_nothing_aside(
    make_job: Callable[..., Job], kafka_cluster: KafkaCluster
) -> None:
    """
    The query fails; once the sink is back, the complete batch arrives.
    """
    job = make_job(numbered(8))
    job.sink.down = True
    with pytest.raises(Exception, match="the sink is down"):
        job.run()
    assert kafka_cluster.consume(job.letters) == []

    job.sink.down = False
    job.run()

    assert job.sink.accepted == Counter(f"{n:04}" for n in range(8))


# test_bisection.py has such a batch without Spark.
@pytest.mark.soak
def test_more_poison_than_allowed_fails_the_query(
    make_job: Callable[..., Job], kafka_cluster: KafkaCluster
) -> None:
    """
    A batch with more poison records than allowed fails the query, and sets nothing aside.
    """
    job = make_job(numbered(60), *(f"{n:04}" for n in range(0, 60, 10)))

    with pytest.raises(Exception, match="cannot take"):
        job.run(PoisonPolicy(max_share=0.05))

    assert kafka_cluster.consume(job.letters) == []


def test_gaps_and_null_records_are_bisected(
    make_job: Callable[..., Job], kafka_cluster: KafkaCluster
) -> None:
    """
    A batch whose offsets have gaps, with a record that has neither key nor value, is bisected.
    """
    records = [Record(None, None) if n == 4 else r for n, r in enumerate(numbered(12))]
    job = make_job(records, "0009")

    job.run(
        columns=("topic", "partition", "offset", "coalesce(value, cast('0009' as binary)) value")
    )

    good = Counter(f"{n:04}" for n in range(12) if n not in {4, 9})
    assert job.sink.accepted == good
    letters = kafka_cluster.consume(job.letters)
    assert sorted((letter.key, letter.value) for letter in letters if letter.value) == [
        (b"key 9", b"0009")
    ]
    assert [(letter.key, letter.value) for letter in letters if not letter.value] == [(None, None)]


def test_missing_position_columns_are_reported(make_job: Callable[..., Job]) -> None:
    """
    The error names the missing columns.
    """
    job = make_job(numbered(3))

    with pytest.raises(Exception, match="the frame lacks partition, offset"):
        job.run(columns=("topic", "value"))
    assert job.sink.runs == 0


def test_invalid_dead_letter_topic_is_rejected() -> None:
    """
    An invalid dead-letter topic is rejected before any query starts.
    """
    options = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}

    with pytest.raises(OptionsError, match="topic is 'a b'"):
        DeadLetterTopic("a b", options)


def test_dead_letters_are_listed_and_replayed_once(
    make_job: Callable[..., Job], kafka_cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    A replay restores each record in its former partition; a second replay finds nothing more.
    """
    job = make_job(numbered(12, headers=[("own", b"x")]), "0003", "0009")
    job.run()
    arguments = ["--bootstrap-server", kafka_cluster.bootstrap, "--topic", job.letters]

    def command(*words: str) -> str:
        assert main(["deadletter", words[0], *arguments, *words[1:]]) == 0
        return capsys.readouterr().out

    letters = json.loads(command("list", "--json"))
    table = command("list").splitlines()
    dry = command("replay")
    sent = command("replay", "--execute")
    second_output = command("replay", "--execute")

    assert sorted(letter["value"] for letter in letters) == ["0003", "0009"]
    assert [letter["headers"] for letter in letters] == [[["own", "x"]]] * 2
    assert {"ValueError:", "batch", "cannot"} <= set(
        " ".join(table).replace("builtins.", "").split()
    )
    assert "nothing was sent" in dry
    assert (sent.splitlines()[-1], second_output.splitlines()[-1]) == ("Sent: 2", "Sent: 0")
    assert command("list", "--json") == "[]\n"
    assert len(json.loads(command("list", "--json", "--all"))) == 2
    records = kafka_cluster.consume(job.options["subscribe"])
    copies = Counter((r.key, r.value, tuple(r.headers or ()), r.partition) for r in records)
    twice = Counter(value for (_, value, *_), n in copies.items() if n == 2)
    assert twice == Counter([b"0003", b"0009"])
    assert len(records) == 14
