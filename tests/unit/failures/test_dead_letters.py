"""
The options of dead-letter topics, dead letters of records with any timestamp, and which of them are
still to be replayed.
"""

from __future__ import annotations

import pytest
from tests.support.memory_cluster import Cluster
from tests.support.record_batches import Record, batch_of
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka.errors import MissingTopicError, OptionsError
from pyspark_pykafka.failures.bisection import FailedRecord
from pyspark_pykafka.failures.dead_letters import (
    DeadLetterTopic,
    dead_letter_fetch_settings,
    read_dead_letters,
    unreplayed_ranges,
)
from pyspark_pykafka.offsets import OffsetRange, TopicPartition
from pyspark_pykafka.options import parse_batch_source
from pyspark_pykafka.progress.record import ProgressRecord
from pyspark_pykafka.settings.librdkafka_config import producer_config
from pyspark_pykafka.sink.dead_letter_headers import provenance_headers

BROKERS = {"kafka.bootstrap.servers": "b:1"}


@pytest.mark.parametrize(
    "options", [BROKERS, {**BROKERS, "subscribe": "t"}, {**BROKERS, "Assign": '{"t": [0]}'}]
)
def test_the_brokers_are_enough(options: dict[str, str]) -> None:
    """
    The options need no topics to read, but may name them.
    """
    dead_letters = DeadLetterTopic("t.dead", options)

    assert dead_letters._sink.topic == "t.dead"
    for settings in (dead_letters._source.kafka, dead_letters._sink.kafka):
        assert settings.get("bootstrap.servers") == "b:1"


def test_mistakes_are_still_reported() -> None:
    """
    The brokers are required, and an unknown option is an error.
    """
    with pytest.raises(OptionsError, match=r"'topics' is not(.|\n)*servers is missing"):
        DeadLetterTopic("t.dead", {"topics": "t"})


@pytest.mark.parametrize(
    "topics",
    [
        {"subscribe": "t,t.dead"},
        {"subscribePattern": "^t"},
        {"assign": '{"t.dead": [0]}'},
    ],
)
def test_a_query_cannot_read_its_own_dead_letters(topics: dict[str, str]) -> None:
    """
    A dead-letter topic that the query reads is refused, unless it is on another cluster.
    """
    with pytest.raises(OptionsError, match=r"'t\.dead', which this query reads.*another topic"):
        DeadLetterTopic("t.dead", {**BROKERS, **topics})

    DeadLetterTopic("t.dead", {**BROKERS, **topics}, kafka={"kafka.bootstrap.servers": "c:1"})


def test_the_option_and_the_class_report_a_loop_alike() -> None:
    """
    The option ``deadLetterTopic`` and the class have one text for the same mistake, except for the
    name that the user has written.
    """
    options = {**BROKERS, "subscribe": "t.dead"}
    decoding = {"valueFormat": "text", "onBadRecord": "deadletter", "deadLetterTopic": "t.dead"}

    with pytest.raises(OptionsError) as of_class:
        DeadLetterTopic("t.dead", options)
    with pytest.raises(OptionsError) as of_option:
        parse_batch_source({**options, **decoding})

    (text,) = of_option.value.mistakes
    assert text.startswith("deadLetterTopic is 't.dead', which this query reads")
    assert of_class.value.mistakes == ("D" + text[1:],)


def test_a_dead_letter_is_not_set_aside_again() -> None:
    """
    A failed record of the dead-letter topic itself is refused, if the options name no topics.
    """
    dead_letters = DeadLetterTopic("t.dead", BROKERS)

    with pytest.raises(OptionsError, match=r"'t\.dead', which this query reads"):
        dead_letters([FailedRecord(TopicPartition("t.dead", 0), 3, ValueError("no"), 1)], 3)


def test_a_missing_topic_is_reported() -> None:
    """
    The check before the search names the topic that is missing.
    """
    with StubCluster(Behaviour(topics={"t": 1})) as cluster:
        options = {"kafka.bootstrap.servers": cluster.bootstrap, "kafka.max.block.ms": "1500"}
        with pytest.raises(MissingTopicError, match=r"t\.dead"):
            DeadLetterTopic("t.dead", options).check()


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({}, str(64 << 20)),
        ({"kafka.max.request.size": "2000000"}, "2000000"),
        ({"Kafka.Message.Max.Bytes": "2000000"}, "2000000"),
    ],
)
def test_limit_of_a_dead_letter_is_that_of_its_topic(options: dict[str, str], size: str) -> None:
    """
    A record with the largest size of its own topic fits with its added headers, unless the user
    limits requests.
    """
    dead_letters = DeadLetterTopic("t.dead", {**BROKERS, **options})

    assert producer_config(dead_letters._sink.kafka)["message.max.bytes"] == size


@pytest.mark.parametrize("text", ["\ud800", "unknown airport \udcff", "é😀", ""])
def test_header_with_any_error(text: str) -> None:
    """
    The headers can be written whatever text the error has.
    """
    tp = TopicPartition("t", 0)

    headers = provenance_headers(tp, 7, None, ValueError(text), batch=3, attempts=2)

    (message,) = [
        header["value"] for header in headers if str(header["key"]).endswith("error.message")
    ]
    assert message == text.encode(errors="backslashreplace")


@pytest.mark.parametrize("engine", ["wire", "librdkafka"])
def test_records_with_any_timestamp_are_set_aside(engine: str) -> None:
    """
    The header has the record's own milliseconds. A dead letter's own timestamp does not matter.
    """
    times = [-(2**63), -1, 1_700_000_000_001, 253_402_300_800_000, 2**62]
    log = [batch_of(Record(offset, time, value=b"v")).encode() for offset, time in enumerate(times)]
    source = TopicPartition("t", 0)
    with StubCluster(Behaviour(topics={"t": 1, "dead": 1}, logs={("t", 0): log})) as cluster:
        options = {"kafka.bootstrap.servers": cluster.bootstrap, "engine": engine}
        failed = [FailedRecord(source, offset, ValueError("no"), 1) for offset in range(len(times))]
        DeadLetterTopic("dead", options)(failed, 3)
        settings = dead_letter_fetch_settings(options)
        letters = [
            *read_dead_letters([OffsetRange(TopicPartition("dead", 0), 0, len(times))], settings)
        ]
        odd = batch_of(Record(0, 2**62, headers=_headers()), Record(1, headers=_headers()))
        cluster.set(logs={("dead", 0): [odd.encode()]})
        odd_letters = [*read_dead_letters([OffsetRange(TopicPartition("dead", 0), 0, 2)], settings)]

    assert [letter.reason["timestamp"] for letter in letters] == [str(time) for time in times]
    assert [letter.value for letter in letters] == [b"v"] * len(times)
    assert [letter.source_offset for letter in odd_letters] == [7, 7]


@pytest.mark.parametrize(
    "changed",
    [
        {"partition": "none"},
        {"offset": "-1"},
        {"offset": "9" * 30},
        {"partition": "²"},
        {"partition": "9" * 10},
    ],
)
def test_records_with_headers_of_others_are_no_dead_letters(changed: dict[str, str]) -> None:
    """
    A record whose headers name no valid position is ignored: any producer may write such a record.
    """
    foreign = batch_of(Record(0, headers=_headers(**changed)), Record(1, headers=_headers()))
    behaviour = Behaviour(topics={"dead": 1}, logs={("dead", 0): [foreign.encode()]})
    with StubCluster(behaviour) as cluster:
        settings = dead_letter_fetch_settings({"kafka.bootstrap.servers": cluster.bootstrap})
        letters = [*read_dead_letters([OffsetRange(TopicPartition("dead", 0), 0, 2)], settings)]

    assert [letter.offset for letter in letters] == [1]


def _headers(**changed: str) -> tuple[tuple[bytes, bytes], ...]:
    reason = {"topic": "t", "partition": "0", "offset": "7", **changed}
    return tuple(
        (f"pykafka.deadletter.{name}".encode(), text.encode()) for name, text in reason.items()
    )


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (None, (2, 9)),
        (ProgressRecord(5, topic_id="id"), (5, 9)),
        (ProgressRecord(1, topic_id="id"), (2, 9)),
        (ProgressRecord(9, topic_id="id"), None),
        (ProgressRecord(5), (5, 9)),
        (ProgressRecord(5, topic_id="old"), (2, 9)),
        (ProgressRecord(50, topic_id="old"), (2, 9)),
    ],
)
def test_unreplayed_ranges(record: ProgressRecord | None, expected: tuple[int, int] | None) -> None:
    """
    The dead letters after the replayed offset are still to be replayed; if the topic was recreated
    since, all of them are.
    """
    cluster = Cluster()
    cluster.create_topic("dead", 9, log_start=2)
    cluster.ids["dead"] = "id"
    tp = TopicPartition("dead", 0)

    ranges = unreplayed_ranges(cluster, "dead", {} if record is None else {tp: record})

    assert ranges == ([OffsetRange(tp, *expected, "id")] if expected else [])
