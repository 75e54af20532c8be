"""
The options of a read: the meaning of each, and the report of all mistakes at once.
"""

from __future__ import annotations

import json
import logging
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_pykafka.options import (
    Assign,
    AtTime,
    Committed,
    ConsumerGroup,
    Earliest,
    GlobalTimestamp,
    LastOffsets,
    Latest,
    NoStore,
    OffsetLimit,
    RackProvider,
    RackVariable,
    SourceOptions,
    SpecificOffsets,
    SpecificTimestamps,
    Strategy,
    Subscribe,
    SubscribePattern,
    TimeAgo,
    ZooKeeperNodes,
    parse_batch_source,
    parse_stream_source,
)
from pyspark_pykafka.options.option_reader import log_no_effect, log_settings

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
MINIMAL = {**SERVERS, "subscribe": "t"}
ZOOKEEPER = {"progressStore": "zookeeper", "zookeeperHosts": "zk:2181", "zookeeperId": "q"}


def batch(**options: str) -> SourceOptions:
    return parse_batch_source({**MINIMAL, **options})


def stream(**options: str) -> SourceOptions:
    return parse_stream_source({**MINIMAL, **options})


def mistakes_of_batch(options: dict[str, str]) -> tuple[str, ...]:
    with pytest.raises(OptionsError, match="Spark options for 'pykafka' are wrong") as caught:
        parse_batch_source(options)
    return caught.value.mistakes


def mistakes_of_stream(options: dict[str, str]) -> tuple[str, ...]:
    with pytest.raises(OptionsError, match="Spark options for 'pykafka' are wrong") as caught:
        parse_stream_source(options)
    return caught.value.mistakes


def test_defaults_are_those_of_the_jvm_connector() -> None:
    """
    Defaults equal the JVM connector's, which differ between batch and stream.
    """
    in_batch, in_stream = batch(), stream()

    assert (in_batch.starting_offsets, in_stream.starting_offsets) == (Earliest(), Latest())
    assert in_batch.ending_offsets == in_stream.ending_offsets == Latest()
    assert in_batch.group_id_prefix == "spark-kafka-relation"
    assert in_stream.group_id_prefix == "spark-kafka-source"
    assert in_batch.fail_on_data_loss
    assert in_batch.poll_timeout_ms == 120_000
    assert in_batch.fetch_offset_num_retries == 3
    assert in_batch.fetch_offset_retry_interval_ms == 1_000
    assert (in_batch.max_offsets_per_trigger, in_batch.min_offsets_per_trigger) == (None, None)
    assert in_batch.max_trigger_delay_ms == 15 * 60 * 1_000
    assert (in_batch.min_partitions, in_batch.max_records_per_partition) == (None, None)
    assert not in_batch.include_headers
    assert in_batch.isolation_level == "read_uncommitted"
    assert in_batch.engine == "auto"
    assert in_batch.max_fetch_memory == 64 << 20


def test_option_names_are_case_insensitive() -> None:
    """
    Names are case-insensitive; values keep their case.
    """
    source_options = {
        "KAFKA.Bootstrap.Servers": "Host:9092",
        "SUBSCRIBE": "Orders",
        "failondataloss": "FALSE",
        "KAFKACONSUMER.POLLTIMEOUTMS": "1234",
        "FETCHOFFSET.NUMRETRIES": "123",
        "fetchoffset.retryintervalms": "1234",
        "MINPARTITIONS": "4",
        "maxrecordsperpartition": "50",
        "GroupIdPrefix": "Pre",
        "INCLUDEHEADERS": "True",
        "Engine": "Auto",
        "kafka.Isolation.Level": "READ_COMMITTED",
    }

    options = parse_batch_source(source_options)

    assert options.strategy == Subscribe(("Orders",))
    assert not options.fail_on_data_loss
    assert options.poll_timeout_ms == 1_234
    assert options.fetch_offset_num_retries == 123
    assert options.fetch_offset_retry_interval_ms == 1_234
    assert (options.min_partitions, options.max_records_per_partition) == (4, 50)
    assert options.group_id_prefix == "Pre"
    assert options.include_headers
    assert options.isolation_level == "read_committed"
    assert options.kafka.get("bootstrap.servers") == "Host:9092"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("subscribe", " a, b ,,a", Subscribe(("a", "b"))),
        ("subscribePattern", " ^orders-[0-9]+$ ", SubscribePattern("^orders-[0-9]+$")),
        ("assign", ' {"t":[1,0,1]} ', Assign((T0, T1))),
    ],
)
def test_every_subscription_strategy(name: str, text: str, expected: Strategy) -> None:
    """
    There are three ways to choose topics; surrounding white space is ignored.
    """
    assert parse_stream_source({**SERVERS, name: text}).strategy == expected


@pytest.mark.parametrize(
    ("options", "text"),
    [
        pytest.param({}, "no topics to read are given", id="none"),
        pytest.param({"subscribe": "t", "subscribePattern": "t"}, "set exactly one of", id="two"),
        pytest.param({"subscribe": "t", "assign": '{"t":[0]}'}, "set exactly one of", id="others"),
        pytest.param({"assign": ""}, "assign is ''; it must be: a JSON object", id="no assign"),
        pytest.param({"assign": "{}"}, "assign is '{}'", id="nothing assigned"),
        pytest.param({"assign": '{"t":[]}'}, "assign is", id="no partition"),
        pytest.param({"assign": '{"t":[-1]}'}, "assign is", id="negative partition"),
        pytest.param({"assign": '{"t":["0"]}'}, "assign is", id="partition as text"),
        pytest.param({"assign": '{"t":[true]}'}, "assign is", id="partition as boolean"),
        pytest.param({"assign": '{"t":0}'}, "assign is", id="no list"),
        pytest.param({"assign": '{"t":[0],"t":[1]}'}, "duplicate keys: t;", id="twice"),
        pytest.param(
            {"subscribe": ""}, "subscribe is ''; it must be: one or more topics", id="no topic"
        ),
        pytest.param({"subscribe": " , "}, "subscribe is ' , '", id="only commas"),
        pytest.param({"subscribe": "orders.*"}, "use subscribePattern", id="a pattern"),
        pytest.param({"subscribePattern": " "}, "subscribePattern is ' '", id="no pattern"),
        pytest.param({"subscribePattern": "["}, "a Python regular expression", id="bad pattern"),
    ],
)
def test_exactly_one_strategy_is_required(options: dict[str, str], text: str) -> None:
    """
    No strategy, two strategies, and empty or invalid ones are rejected.
    """
    for mistakes in (
        mistakes_of_batch({**SERVERS, **options}),
        mistakes_of_stream({**SERVERS, **options}),
    ):
        assert any(text in mistake for mistake in mistakes), mistakes


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": " earLiEst "}, Earliest()),
        ({"startingOffsets": "laTest"}, Latest()),
        (
            {"startingOffsets": '{"t":{"1":-1,"0":-2}}'},
            SpecificOffsets(((T0, EARLIEST), (T1, LATEST))),
        ),
        ({"startingTimestamp": " 5 "}, GlobalTimestamp(5, "error")),
        (
            {"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "LaTest"},
            GlobalTimestamp(5, "latest"),
        ),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":7}}'},
            SpecificTimestamps(((T0, 7),), "error"),
        ),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":7}}', "startingOffsets": "earliest"},
            SpecificTimestamps(((T0, 7),), "error"),
        ),
        (
            {"startingTimestamp": "5", "startingOffsetsByTimestamp": '{"t":{"0":7}}'},
            GlobalTimestamp(5, "error"),
        ),
    ],
)
def test_starting_offsets_of_a_stream(options: dict[str, str], expected: OffsetLimit) -> None:
    """
    A start is a keyword in any case, JSON or a timestamp; startingTimestamp overrides timestamps by
    partition, which override offsets.
    """
    assert stream(**options).starting_offsets == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"endingOffsets": "LATEST"}, Latest()),
        ({"endingOffsets": '{"t":{"0":9,"1":-1}}'}, SpecificOffsets(((T0, 9), (T1, LATEST)))),
        (
            {"endingOffsetsByTimestamp": '{"t":{"0":7}}', "endingOffsets": "latest"},
            SpecificTimestamps(((T0, 7),), "latest"),
        ),
        (
            {"endingTimestamp": "5", "endingOffsetsByTimestamp": '{"t":{"0":7}}'},
            GlobalTimestamp(5, "latest"),
        ),
    ],
)
def test_ending_offsets_of_a_batch(options: dict[str, str], expected: OffsetLimit) -> None:
    """
    The precedence is the same as at the start; a timestamp after the last record means latest.
    """
    assert batch(**options).ending_offsets == expected


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets is 'latest'; a batch query cannot"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets for t-0 is -1; a batch query"),
        ({"endingOffsets": "earliest"}, "endingOffsets is 'earliest'; a batch query cannot"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "endingOffsets for t-0 is -2; a batch query"),
    ],
)
def test_empty_batch_range_is_rejected(options: dict[str, str], text: str) -> None:
    """
    A batch cannot start at latest nor end at earliest, by keyword or by number.
    """
    assert any(text in mistake for mistake in mistakes_of_batch({**MINIMAL, **options}))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "first",
        "23",
        "[]",
        "{",
        '{"t":5}',
        '{"t":{"0":"1"}}',
        '{"t":{"0":1.0}}',
        '{"t":{"0":true}}',
        '{"t":{"0":null}}',
        '{"t":{"zero":1}}',
        '{"t":{"-1":1}}',
        '{"t":{"0":1,"0":2}}',
        '{"t":{"0":-3}}',
        '{"t":{"0":9223372036854775808}}',
        "[" * 100_000,
    ],
    ids=lambda text: text[:12],
)
def test_invalid_offsets_are_rejected(text: str) -> None:
    """
    Anything but an object of offsets is rejected, and so are offsets below -2.
    """
    (mistake,) = mistakes_of_stream({**MINIMAL, "startingOffsets": text})

    assert mistake.startswith(f"startingOffsets is '{text[:200]}")


def test_keyword_for_a_whole_topic() -> None:
    """
    A topic can have a keyword for all its partitions, beside topics with an offset per
    partition.
    """
    text = '{"b":"LATEST","a":"Earliest","t":{"0":9}}'

    starting = parse_stream_source({**MINIMAL, "startingOffsets": text}).starting_offsets

    assert starting == SpecificOffsets(((T0, 9),), (("a", EARLIEST), ("b", LATEST)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-10 minutes", TimeAgo(600_000)),
        (" -2H ", TimeAgo(7_200_000)),
        ("-500ms", TimeAgo(500)),
        ("-1 day", TimeAgo(86_400_000)),
        ("- 3 weeks", TimeAgo(21 * 86_400_000)),
        ("-100", LastOffsets(100)),
        ("-1 offset", LastOffsets(1)),
        ("-2 records", LastOffsets(2)),
        ("1970-01-01T01:00:00.0015+01:00", AtTime(2)),
        ("1970-01-01T00:00:00.000001Z", AtTime(1)),
        ("1970-01-01T00:00:00.002Z", AtTime(2)),
        ("1970-01-01T23:59:59.999999Z", AtTime(86_400_000)),
        ("1970-01-02T00:00Z", AtTime(86_400_000)),
        (
            '{"a":"-100","b":"latest","t":{"0":23,"1":"-2 offsets"}}',
            SpecificOffsets(
                ((T0, 23), (T1, LastOffsets(2))), (("a", LastOffsets(100)), ("b", LATEST))
            ),
        ),
    ],
)
def test_positions_in_everyday_words(text: str, expected: OffsetLimit) -> None:
    """
    A time relative to now, a number of last offsets and a time with a zone are accepted for all
    partitions, by topic or by partition; as a start of any read and as the end of a batch.
    """
    assert stream(startingOffsets=text).starting_offsets == expected
    assert batch(endingOffsets=text).ending_offsets == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("-1", "'-1' is ambiguous; it must be: latest, or '-1 offsets'"),
        ("-2", "'-2' is ambiguous; it must be: earliest, or '-2 offsets'"),
        ('{"t":"-1"}', "'-1' is ambiguous"),
        ("-3 fortnights", "'fortnights' is not a unit of time; it must be one of: ms, s, m, h"),
        ("2026-11-24T08:00:00", "the time '2026-11-24T08:00:00' has no zone"),
        ("2026-11-24", "has no zone"),
        ("2026-11-24T25:00Z", "is not a time; it must be as in 2026-11-24T08:00:00+01:00"),
        ("1969-12-31T00:00Z", "is before 1970"),
        ("10 minutes", "it must be: committed, earliest, latest, a time relative to now (-10"),
        ("-1.5 hours", "it must be: committed, earliest, latest, a time relative to now (-10"),
        ('{"t":{"0":-100}}', 'or "-100" in quotes for the last 100 offsets'),
    ],
)
def test_an_unclear_position_is_rejected(text: str, reason: str) -> None:
    """
    A position that is ambiguous, or depends on a machine's time zone, is rejected with the
    form to write instead.
    """
    (mistake,) = mistakes_of_stream({**MINIMAL, "startingOffsets": text})

    assert mistake.startswith(f"startingOffsets is '{text}'; ")
    assert reason in mistake


@pytest.mark.parametrize("text", ["-10 minutes", "-100", '{"t":"-1h"}', '{"t":{"0":"-100"}}'])
def test_a_stream_does_not_end_at_a_moving_position(text: str) -> None:
    """
    A stream resolves its end in each batch, so only an end that does not move is accepted.
    """
    (mistake,) = mistakes_of_stream({**MINIMAL, "endingOffsets": text})

    assert "it must be: latest, offsets, or a time with a zone" in mistake
    assert stream(endingOffsets="1970-01-01T00:00:01Z").ending_offsets == AtTime(1000)


@pytest.mark.parametrize(
    "text", ['{"t":"now"}', '{"t":null}', '{"t":"earliest","t":{"0":1}}', '{"a b":"earliest"}']
)
def test_invalid_keyword_for_a_topic_is_rejected(text: str) -> None:
    """
    An unknown keyword, a topic in both forms or an illegal topic name is rejected.
    """
    (mistake,) = mistakes_of_stream({**MINIMAL, "startingOffsets": text})

    assert mistake.startswith(f"startingOffsets is '{text}'")


def test_empty_range_of_one_topic_is_rejected() -> None:
    """
    A batch that starts at latest or ends at earliest is also rejected for single topics.
    """
    mistakes = mistakes_of_batch(
        {
            **MINIMAL,
            "startingOffsets": '{"t":"latest"}',
            "endingOffsets": '{"t":"earliest"}',
            "startingOffsetsFallback": "latest",
        }
    )

    assert [m.split("; ")[0] for m in mistakes] == [
        "startingOffsetsFallback is 'latest'",
        "startingOffsets for t is -1",
        "endingOffsets for t is -2",
    ]


def test_committed_requires_a_group_id() -> None:
    """
    startingOffsets=committed is rejected without kafka.group.id.
    """
    (mistake,) = mistakes_of_stream({**MINIMAL, "startingOffsets": "Committed"})
    options = {**MINIMAL, "startingOffsets": "committed", "kafka.group.id": "billing"}

    assert mistake.startswith("startingOffsets is 'committed', but kafka.group.id is missing")
    assert parse_stream_source(options).starting_offsets == Committed()


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("startingOffsetsFallback", "ERROR", "starting_offsets_fallback", None),
        ("startingOffsetsFallback", "latest", "starting_offsets_fallback", LATEST),
        ("newPartitionOffsets", "Latest", "new_partition_offsets", LATEST),
        ("newPartitionOffsets", "earliest", "new_partition_offsets", EARLIEST),
        ("maxOffsetsPerTrigger", "9223372036854775807", "max_offsets_per_trigger", 2**63 - 1),
        ("maxOffsetsPerPartitionPerTrigger", "7", "max_offsets_per_partition_per_trigger", 7),
        ("maxBytesPerTrigger", "64m", "max_bytes_per_trigger", 64 << 20),
        ("minOffsetsPerTrigger", "5", "min_offsets_per_trigger", 5),
        ("maxTriggerDelay", "5s", "max_trigger_delay_ms", 5000),
    ],
)
def test_stream_options_are_parsed(name: str, text: str, field: str, value: int | None) -> None:
    """
    Names and keywords of stream options are case-insensitive, and values become numbers.
    """
    assert getattr(parse_stream_source({**MINIMAL, name.upper(): text}), field) == value


@pytest.mark.parametrize("text", ["-1", "1.5", "soon", "", "9223372036854775808", "1_0", "\u0661"])
def test_invalid_timestamps_are_rejected(text: str) -> None:
    """
    A timestamp is a whole number of milliseconds; brokers would take -1 and -2 for keywords.
    """
    (start,) = mistakes_of_stream({**MINIMAL, "startingTimestamp": text})
    (end,) = mistakes_of_batch(
        {**MINIMAL, "endingOffsetsByTimestamp": json.dumps({"t": {"0": text}})}
    )

    assert f"startingTimestamp is '{text}'; it must be: a whole number, at least 0" in start
    assert "endingOffsetsByTimestamp is" in end


@pytest.mark.parametrize("text", ["earliest", '{"t":{"0":-2}}', '{"t":"earliest"}'])
def test_stream_cannot_end_at_earliest(text: str) -> None:
    """
    A stream can have ending offsets, but not earliest: it would read nothing.
    """
    (mistake,) = mistakes_of_stream({**MINIMAL, "endingOffsets": text})

    assert "a stream cannot end at earliest: it would read nothing" in mistake


@pytest.mark.parametrize("name", ["minPartitions", "maxRecordsPerPartition"])
@pytest.mark.parametrize("text", ["a", "1.0", "0", "-1", ""])
def test_counts_must_be_positive(name: str, text: str) -> None:
    """
    Anything but a positive whole number is rejected.
    """
    (mistake,) = mistakes_of_batch({**MINIMAL, name: text})

    assert mistake == f"{name} is '{text}'; it must be: a whole number, at least 1"


@pytest.mark.parametrize("name", ["minPartitions", "maxRecordsPerPartition"])
def test_latest_per_key_needs_whole_partitions(name: str) -> None:
    """
    Options that split partitions are rejected with latestPerKey: each part would have a latest
    record.
    """
    (mistake,) = mistakes_of_batch({**MINIMAL, "latestPerKey": "true", name: "2"})

    assert mistake.startswith(f"{name} and latestPerKey are set together; remove {name}")
    assert batch(latestPerKey="true").latest_per_key
    assert not batch(minPartitions="2").latest_per_key


def test_latest_per_key_reads_committed_records() -> None:
    """
    Without a setting, latestPerKey ignores records of open and aborted transactions: an aborted
    record would hide the committed one of its key.
    """
    committed = {"kafka.isolation.level": "read_committed"}

    assert batch(latestPerKey="true").isolation_level == "read_committed"
    assert batch(latestPerKey="true", **committed).isolation_level == "read_committed"
    assert batch(latestPerKey="false").isolation_level == "read_uncommitted"


@pytest.mark.parametrize("level", ["read_uncommitted", "READ_UNCOMMITTED"])
def test_latest_per_key_rejects_uncommitted_records(level: str) -> None:
    """
    The error names both options, and what the isolation level must be.
    """
    options = {**MINIMAL, "kafka.isolation.level": level}

    (mistake,) = mistakes_of_batch({**options, "latestPerKey": "true"})

    assert mistake.startswith("kafka.isolation.level is 'read_uncommitted' and latestPerKey is set")
    assert "it must be: read_committed" in mistake
    assert parse_batch_source({**options, "latestPerKey": "false"}).latest_per_key is False


def test_a_stream_has_no_latest_per_key() -> None:
    """
    A stream rejects latestPerKey, since it would need the state of all earlier micro-batches.
    """
    (mistake,) = mistakes_of_stream({**MINIMAL, "latestPerKey": "true"})

    assert "latestPerKey" in mistake


def test_min_offsets_must_not_exceed_max_offsets() -> None:
    """
    A minOffsetsPerTrigger above maxOffsetsPerTrigger is reported.
    """
    limits = {"minOffsetsPerTrigger": "15", "maxOffsetsPerTrigger": "5"}

    assert any(
        "minOffsetsPerTrigger is '15'; it must be: at most maxOffsetsPerTrigger, 5" in mistake
        for mistake in mistakes_of_stream({**MINIMAL, **limits})
    )


def test_trigger_limits_have_no_effect_in_a_batch(caplog: pytest.LogCaptureFixture) -> None:
    """
    A batch accepts trigger limits, with one warning each per process, as the JVM connector does.
    """
    log_no_effect.cache_clear()
    limits = {"maxOffsetsPerTrigger": "1", "minOffsetsPerTrigger": "2", "maxTriggerDelay": "3m"}

    options = [batch(**limits), batch(**limits)][0]

    assert (options.max_offsets_per_trigger, options.min_offsets_per_trigger) == (None, None)
    assert caplog.messages == [
        "Option maxOffsetsPerTrigger has no effect in a batch read",
        "Option maxTriggerDelay has no effect in a batch read",
        "Option minOffsetsPerTrigger has no effect in a batch read",
    ]


def test_ignored_settings_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """
    Only the names of ignored settings are logged, once, at INFO; disabled protection is a warning.
    """
    log_settings.cache_clear()
    caplog.set_level(logging.INFO, "pyspark_pykafka")
    useless = {"kafka.metric.reporters": "SECRET", "kafka.max.poll.records": "7"}
    unsafe = {"kafka.enable.ssl.certificate.verification": "false"}

    for _ in range(2):
        stream(**useless, **unsafe)

    assert [(record.levelname, record.message[:60]) for record in caplog.records] == [
        ("INFO", "Kafka settings without effect: max.poll.records, metric.repo"),
        ("WARNING", "kafka.enable.ssl.certificate.verification=false: any server "),
    ]
    assert "SECRET" not in caplog.text


def test_progress_store_options() -> None:
    """
    There is no store by default; a consumer group's name comes from kafka.group.id.
    """
    group = {"progressStore": "ConsumerGroup", "kafka.group.id": " g "}
    nodes = {"progressStore": "zookeeper", "zookeeperHosts": "a:1, b", "zookeeperId": "q-1"}

    assert stream().progress_store == NoStore()
    assert stream(**group).progress_store == ConsumerGroup("g")
    assert stream(**nodes).progress_store == ZooKeeperNodes(
        "a:1,b", "/pykafka", "q-1", 10_000, None, "open"
    )


@pytest.mark.parametrize(
    ("acl", "expected_acl"), [({}, "creator"), ({"zookeeperAcl": "Readable"}, "readable")]
)
def test_zookeeper_digest_sets_the_default_acl(acl: dict[str, str], expected_acl: str) -> None:
    """
    With a digest, new nodes are restricted to its user by default; no repr shows the password.
    """
    nodes = {"progressStore": "zookeeper", "zookeeperHosts": "a", "zookeeperId": "q"}
    options = stream(**nodes, zookeeperDigest="me:SE:CRET", zookeeperRoot="/a/b", **acl)

    assert isinstance(options.progress_store, ZooKeeperNodes)
    assert options.progress_store.digest == ("me", "SE:CRET")
    assert (options.progress_store.root, options.progress_store.acl) == ("/a/b", expected_acl)
    assert "CRET" not in repr(options)


@pytest.mark.parametrize(
    ("options", "mistakes"),
    [
        ({"progressStore": "consumerGroup"}, ["kafka.group.id is missing; set it to"]),
        (
            {"progressStore": "zookeeper"},
            ["zookeeperHosts is missing; it must be: serv", "zookeeperId is missing; it must be"],
        ),
        (
            {"zookeeperId": "q", "zookeeperRoot": "/x"},
            ["zookeeperId is set, but progressStore is 'none'", "zookeeperRoot is set"],
        ),
        (
            {**ZOOKEEPER, "zookeeperDigest": "SECRET"},
            ["zookeeperDigest is '***'; it must be: a user"],
        ),
        ({**ZOOKEEPER, "zookeeperAcl": "creator"}, ["zookeeperDigest is missing; set it to that"]),
        (
            {**ZOOKEEPER, "zookeeperHosts": "a b"},
            ["zookeeperHosts is 'a b'; it must be: server add"],
        ),
        ({**ZOOKEEPER, "zookeeperRoot": "x"}, ["zookeeperRoot is 'x'; it must be: a node path"]),
        ({**ZOOKEEPER, "zookeeperId": "a/b"}, ["zookeeperId is 'a/b'; it must be: a name"]),
        ({**ZOOKEEPER, "zookeeperId": ".."}, ["zookeeperId is '..'; it must be: a name"]),
        ({**ZOOKEEPER, "zookeeperSessionTimeoutMs": "1"}, ["zookeeperSessionTimeoutMs is '1'"]),
    ],
)
def test_invalid_progress_store_options_are_reported(
    options: dict[str, str], mistakes: list[str]
) -> None:
    """
    Missing options of a store and options of another store are reported, without secrets.
    """
    reported = mistakes_of_stream({**MINIMAL, **options})

    assert len(reported) == len(mistakes)
    for text, mistake in zip(mistakes, reported, strict=True):
        assert text in mistake
        assert "SECRET" not in mistake


def test_committed_reads_the_zookeeper_store() -> None:
    """
    With ZooKeeper, startingOffsets=committed needs no group, neither in a stream nor in a batch.
    """
    options = {**ZOOKEEPER, "startingOffsets": "committed"}

    assert stream(**options).starting_offsets == batch(**options).starting_offsets == Committed()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"maxFetchMemory": "64 bytes"},
            "maxFetchMemory is '64 bytes'; it must be: a number of bytes, optionally with a unit",
        ),
        ({"maxFetchMemory": "10k"}, "from 1m to 8g"),
        ({"engine": "turbo"}, "engine is 'turbo'; it must be: one of: auto, wire, librdkafka"),
        ({"progressStore": "kafka"}, "one of: none, consumerGroup, zookeeper"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss is 'maybe'; it must be: one of: true, false"),
        ({"kafkaConsumer.pollTimeoutMs": "0"}, "kafkaConsumer.pollTimeoutMs is '0'"),
        ({"fetchOffset.numRetries": "x"}, "fetchOffset.numRetries is 'x'"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "one of: error, latest"),
        (
            {"kafka.isolation.level": "dirty"},
            "kafka.isolation.level is 'dirty'; it must be: one of",
        ),
        ({"topic": "t"}, "'topic' is not valid in a streaming read; it applies to: batch write"),
        ({"maxOffsetPerTrigger": "1"}, "not an option; did you mean 'maxOffsetsPerTrigger'?"),
        ({"sasl.password": "x"}, "not an option; did you mean 'kafka.sasl.password'?"),
        ({"kafak.group.id": "x"}, "not an option; did you mean 'kafka.group.id'?"),
        ({"zzz": "x"}, "'zzz' is not an option; docs/options.md lists all options"),
        (
            {"spark.kafka.clusters.a.auth.bootstrap.servers": "x"},
            "librdkafka cannot use delegation tokens",
        ),
    ],
)
def test_mistakes_name_the_accepted_values(options: dict[str, str], text: str) -> None:
    """
    A mistake names the option in its documented spelling, the given value and the accepted ones.
    """
    (mistake,) = mistakes_of_stream({**MINIMAL, **options})

    assert text in mistake


def test_all_mistakes_are_in_one_error() -> None:
    """
    One error lists all mistakes, in a fixed form.
    """
    with pytest.raises(OptionsError) as caught:
        parse_stream_source(
            {"subscribe": "t", "failondataloss": "maybe", "maxoffsetpertrigger": "1"}
        )

    assert str(caught.value) == (
        "Spark options for 'pykafka' are wrong:\n"
        "- 'maxoffsetpertrigger' is not an option; did you mean 'maxOffsetsPerTrigger'?\n"
        "- failOnDataLoss is 'maybe'; it must be: one of: true, false\n"
        "- kafka.bootstrap.servers is missing; set it to the brokers' addresses, "
        "such as 'host:9092,host2:9092'"
    )


def test_spark_own_options_are_accepted() -> None:
    """
    Options that Spark itself adds are accepted, and change nothing.
    """
    assert batch(path="p", checkpointLocation="c", queryName="q") == batch()


def test_null_means_not_set() -> None:
    """
    An option that is null counts as not set.
    """
    assert parse_batch_source({**MINIMAL, "minPartitions": None}).min_partitions is None


@given(
    st.dictionaries(
        st.builds(TopicPartition, st.sampled_from(["t", "a.b", "A_b-9"]), st.integers(0, 9)),
        st.integers(EARLIEST, 2**63 - 1),
        min_size=1,
        max_size=5,
    )
)
def test_any_offsets_are_parsed(offsets: dict[TopicPartition, int]) -> None:
    """
    Every JSON object of offsets is parsed to exactly its offsets, sorted.
    """
    document: dict[str, dict[str, int]] = {}
    for tp, offset in offsets.items():
        document.setdefault(tp.topic, {})[str(tp.partition)] = offset

    starting = stream(startingOffsets=json.dumps(document)).starting_offsets

    assert starting == SpecificOffsets(tuple(sorted(offsets.items())))


@pytest.mark.parametrize(
    "options",
    [
        batch(startingOffsets='{"t":{"0":1}}', endingTimestamp="5"),
        stream(startingOffsetsByTimestamp='{"t":{"0":1}}'),
        stream(startingOffsets='{"a":"-100","b":"-1h","t":{"0":"2026-11-24T08:00Z"}}'),
        parse_stream_source({**SERVERS, "assign": '{"t":[0]}'}),
        parse_stream_source({**SERVERS, "subscribePattern": "t"}),
    ],
)
def test_options_pickle_whole(options: SourceOptions) -> None:
    """
    Pickled options are equal in every field, and hash alike.
    """
    copy = pickle.loads(pickle.dumps(options))  # noqa: S301 - our own bytes

    assert copy == options
    assert hash(copy) == hash(options)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1m", 1 << 20),
        ("2 MB", 2 << 20),
        ("1g", 1 << 30),
        ("2048K", 2 << 20),
        ("3000000", 3_000_000),
    ],
)
def test_byte_sizes_have_the_units_of_spark(text: str, size: int) -> None:
    """
    A number of bytes accepts k, m and g, with or without b, in any case.
    """
    assert parse_stream_source({**MINIMAL, "maxFetchMemory": text}).max_fetch_memory == size


DEAD_LETTERS = {"valueFormat": "text", "onBadRecord": "deadletter", "deadLetterTopic": "t.dead"}


def test_dead_letter_topic() -> None:
    """
    Bad records go to the topic of the option.
    """
    formats = stream(**DEAD_LETTERS, maxBadRecords="5").formats

    assert (formats.on_bad_record, formats.dead_letter_topic) == ("deadletter", "t.dead")


@pytest.mark.parametrize(
    ("changes", "mistake"),
    [
        ({"deadLetterTopic": None}, "deadLetterTopic is missing; set it to the topic"),
        ({"onBadRecord": "null"}, "but onBadRecord is 'null'; it must be: deadletter"),
        ({"deadLetterTopic": "t"}, "deadLetterTopic is 't', which this query reads"),
        ({"subscribe": None, "assign": '{"t.dead":[0]}'}, "'t.dead', which this query reads"),
        ({"subscribe": None, "subscribePattern": "^t"}, "a pattern that does not match it"),
        ({"kafka.acks": "1"}, "acks"),
    ],
)
def test_mistakes_about_dead_letters(changes: dict[str, str | None], mistake: str) -> None:
    """
    A missing dead-letter topic, one that the query reads, and producer settings that lose records
    are reported.
    """
    options = {**MINIMAL, **DEAD_LETTERS, **changes}

    (reported,) = mistakes_of_batch(
        {name: text for name, text in options.items() if text is not None}
    )

    assert mistake in reported


def test_sources_of_the_rack() -> None:
    """
    The rack comes from a variable or an entry point of each executor, or is the same for all.
    """
    assert batch(clientRackEnv="ZONE").rack_source == RackVariable("ZONE")
    assert stream(clientRackProvider=" our.zone-2 ").rack_source == RackProvider("our.zone-2")
    assert batch(**{"kafka.client.rack": "a"}).rack_source is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"clientRackEnv": "$ZONE"},
            "an environment variable that ends in the word RACK, ZONE or AZ",
        ),
        ({"clientRackEnv": "MYZONE"}, "that ends in the word RACK, ZONE or AZ, or in"),
        ({"clientRackEnv": "AWS_SECRET_ACCESS_KEY"}, "that ends in the word RACK, ZONE or AZ"),
        (
            {"clientRackProvider": "os:getcwd"},
            "'os:getcwd'; it must be: the name of an entry point",
        ),
        (
            {"clientRackEnv": "ZONE", "clientRackProvider": "zone"},
            "clientRackEnv, clientRackProvider are set together; set one of",
        ),
        (
            {"clientRackEnv": "ZONE", "kafka.client.rack": "a"},
            "kafka.client.rack, clientRackEnv are set together; set one of",
        ),
    ],
)
def test_wrong_sources_of_the_rack(options: dict[str, str], expected: str) -> None:
    """
    Two sources of the rack, or one in an invalid form, are reported with the accepted form.
    """
    (mistake,) = mistakes_of_batch({**MINIMAL, **options})

    assert expected in mistake


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("schema.registry.url", f"http://{'r' * 64}.example:8081"),
        ("schema.registry.url", f"http://{chr(0xFC) * 64}.example:8081"),
        ("schema.registry.url", "http://registry..example"),
        ("schema.registry.url", f"http://registry/{chr(0xFC)}"),
        ("schema.registry.bearer.auth.token", "canary\u20ac"),
        ("schema.registry.bearer.auth.token", "canary\r\nHost: other"),
    ],
)
def test_a_registry_to_which_no_request_can_be_sent(name: str, value: str) -> None:
    """
    Host names beyond DNS's limits, and characters that HTTP does not allow, are mistakes that name
    the option; a token is not shown.
    """
    url = {"schema.registry.url": "http://registry:8081", "valueFormat": "avro"}
    mistakes = mistakes_of_batch({**MINIMAL, **url, name: value})

    (mistake,) = (mistake for mistake in mistakes if name in mistake)
    assert "it must be: " in mistake
    assert "canary" not in mistake


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:8081",
        "https://registry.example./apis",
        "http://[::1]:8081",
        f"http://b{chr(0xFC)}cher.example",
    ],
)
def test_urls_of_a_registry(url: str) -> None:
    """
    IPv6 addresses, international host names and a final dot are accepted.
    """
    options = batch(**{"schema.registry.url": url, "valueFormat": "avro"})

    assert options.formats.registry is not None
