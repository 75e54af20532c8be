"""
The options of reading: every one with its meaning, and every mistake told at once.
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
    Committed,
    ConsumerGroup,
    Earliest,
    GlobalTimestamp,
    Latest,
    NoStore,
    OffsetLimit,
    SourceOptions,
    SpecificOffsets,
    SpecificTimestamps,
    Strategy,
    Subscribe,
    SubscribePattern,
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
    What is not given has the JVM connector's default, which differs between batch and stream.
    """
    one, other = batch(), stream()

    assert (one.starting_offsets, other.starting_offsets) == (Earliest(), Latest())
    assert one.ending_offsets == other.ending_offsets == Latest()
    assert one.group_id_prefix == "spark-kafka-relation"
    assert other.group_id_prefix == "spark-kafka-source"
    assert one.fail_on_data_loss
    assert one.poll_timeout_ms == 120_000
    assert one.fetch_offset_num_retries == 3
    assert one.fetch_offset_retry_interval_ms == 1_000
    assert (one.max_offsets_per_trigger, one.min_offsets_per_trigger) == (None, None)
    assert one.max_trigger_delay_ms == 15 * 60 * 1_000
    assert (one.min_partitions, one.max_records_per_partition) == (None, None)
    assert not one.include_headers
    assert one.isolation_level == "read_uncommitted"
    assert one.engine == "auto"
    assert one.max_fetch_memory == 64 << 20


def test_every_option_in_any_case_of_its_name() -> None:
    """
    O36, O37: names are read in any case, values keep theirs.
    """
    given_options = {
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

    options = parse_batch_source(given_options)

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
def test_each_strategy(name: str, text: str, expected: Strategy) -> None:
    """
    What to read is named in three ways; white space around it does not count.
    """
    assert parse_stream_source({**SERVERS, name: text}).strategy == expected


@pytest.mark.parametrize(
    ("options", "text"),
    [
        pytest.param({}, "one of these options must be given", id="none"),
        pytest.param({"subscribe": "t", "subscribePattern": "t"}, "only one of these", id="two"),
        pytest.param({"subscribe": "t", "assign": '{"t":[0]}'}, "only one of these", id="others"),
        pytest.param({"assign": ""}, "assign is ''; it must be: a JSON object", id="no assign"),
        pytest.param({"assign": "{}"}, "assign is '{}'", id="nothing assigned"),
        pytest.param({"assign": '{"t":[]}'}, "assign is", id="no partition"),
        pytest.param({"assign": '{"t":[-1]}'}, "assign is", id="negative partition"),
        pytest.param({"assign": '{"t":["0"]}'}, "assign is", id="partition as text"),
        pytest.param({"assign": '{"t":[true]}'}, "assign is", id="partition as truth"),
        pytest.param({"assign": '{"t":0}'}, "assign is", id="no list"),
        pytest.param({"assign": '{"t":[0],"t":[1]}'}, "names t more than once", id="twice"),
        pytest.param({"subscribe": ""}, "subscribe is ''; it must be: one topic", id="no topic"),
        pytest.param({"subscribe": " , "}, "subscribe is ' , '", id="only commas"),
        pytest.param({"subscribe": "orders.*"}, "use subscribePattern", id="a pattern"),
        pytest.param({"subscribePattern": " "}, "subscribePattern is ' '", id="no pattern"),
        pytest.param({"subscribePattern": "["}, "a regular expression", id="bad pattern"),
    ],
)
def test_what_to_read_must_be_said_once(options: dict[str, str], text: str) -> None:
    """
    S36, R16: none, two, empty or unreadable ways to say what to read are refused.
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
def test_where_a_stream_starts(options: dict[str, str], expected: OffsetLimit) -> None:
    """
    S38: words in any case, JSON, times; the global time wins over times, times over offsets.
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
def test_where_a_batch_ends(options: dict[str, str], expected: OffsetLimit) -> None:
    """
    The same precedence as at the start; a time that no record reaches means latest.
    """
    assert batch(**options).ending_offsets == expected


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets is 'latest'; a batch query can't"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets for t-0 is -1; a batch query"),
        ({"endingOffsets": "earliest"}, "endingOffsets is 'earliest'; a batch query can't"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "endingOffsets for t-0 is -2; a batch query"),
    ],
)
def test_a_batch_that_would_be_empty_is_refused(options: dict[str, str], text: str) -> None:
    """
    R16: a batch cannot start at latest nor end at earliest, by word or by number.
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
def test_offsets_that_cannot_be_read(text: str) -> None:
    """
    O31: what is no offset document is refused, and so are offsets below -2.
    """
    (mistake,) = mistakes_of_stream({**MINIMAL, "startingOffsets": text})

    assert mistake.startswith(f"startingOffsets is '{text[:200]}")


def test_words_for_whole_topics() -> None:
    """
    N06: a topic can have a word for all its partitions, beside others with an offset for each.
    """
    text = '{"b":"LATEST","a":"Earliest","t":{"0":9}}'

    starting = parse_stream_source({**MINIMAL, "startingOffsets": text}).starting_offsets

    assert starting == SpecificOffsets(((T0, 9),), (("a", EARLIEST), ("b", LATEST)))


@pytest.mark.parametrize(
    "text", ['{"t":"now"}', '{"t":null}', '{"t":"earliest","t":{"0":1}}', '{"a b":"earliest"}']
)
def test_words_for_topics_that_cannot_be_read(text: str) -> None:
    """
    N09: another word, a topic in both forms or a name that no topic can have is refused.
    """
    (mistake,) = mistakes_of_stream({**MINIMAL, "startingOffsets": text})

    assert mistake.startswith(f"startingOffsets is '{text}'")


def test_words_that_make_no_sense_in_a_batch() -> None:
    """
    R16: a batch that starts at latest or ends at earliest is refused for single topics as well.
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


def test_committed_needs_a_group() -> None:
    """
    Whose committed offsets are meant must be said.
    """
    (mistake,) = mistakes_of_stream({**MINIMAL, "startingOffsets": "Committed"})
    named = {**MINIMAL, "startingOffsets": "committed", "kafka.group.id": "billing"}

    assert mistake.startswith("startingOffsets is 'committed' and kafka.group.id is missing")
    assert parse_stream_source(named).starting_offsets == Committed()


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
def test_what_a_stream_can_be_told(name: str, text: str, field: str, value: int | None) -> None:
    """
    Options of streams in any case of letters, as the values that planning works with.
    """
    assert getattr(parse_stream_source({**MINIMAL, name.upper(): text}), field) == value


@pytest.mark.parametrize("text", ["-1", "1.5", "soon", "", "9223372036854775808", "1_0", "\u0661"])
def test_times_that_cannot_be_read(text: str) -> None:
    """
    A time is a whole number of milliseconds; -1 and -2 would be words to a broker.
    """
    (one,) = mistakes_of_stream({**MINIMAL, "startingTimestamp": text})
    (other,) = mistakes_of_batch(
        {**MINIMAL, "endingOffsetsByTimestamp": json.dumps({"t": {"0": text}})}
    )

    assert f"startingTimestamp is '{text}'; it must be: a whole number, at least 0" in one
    assert "endingOffsetsByTimestamp is" in other


@pytest.mark.parametrize("text", ["earliest", '{"t":{"0":-2}}', '{"t":"earliest"}'])
def test_a_stream_cannot_end_at_its_start(text: str) -> None:
    """
    A stream can be told where to end; not at earliest, it would read nothing.
    """
    (mistake,) = mistakes_of_stream({**MINIMAL, "endingOffsets": text})

    assert "a stream that ends at earliest would read nothing" in mistake


@pytest.mark.parametrize("name", ["minPartitions", "maxRecordsPerPartition"])
@pytest.mark.parametrize("text", ["a", "1.0", "0", "-1", ""])
def test_counts_must_be_positive(name: str, text: str) -> None:
    """
    M30: what is no positive whole number is refused.
    """
    (mistake,) = mistakes_of_batch({**MINIMAL, name: text})

    assert mistake == f"{name} is '{text}'; it must be: a whole number, at least 1"


def test_the_least_must_not_be_above_the_most() -> None:
    """
    S36: minOffsetsPerTrigger above maxOffsetsPerTrigger is a mistake of its own.
    """
    limits = {"minOffsetsPerTrigger": "15", "maxOffsetsPerTrigger": "5"}

    assert any(
        "minOffsetsPerTrigger is '15'; it must be: at most maxOffsetsPerTrigger, 5" in mistake
        for mistake in mistakes_of_stream({**MINIMAL, **limits})
    )


def test_limits_of_triggers_have_no_effect_in_a_batch(caplog: pytest.LogCaptureFixture) -> None:
    """
    A batch accepts them with a warning, once in a process, as the JVM connector does.
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


def test_settings_without_effect_are_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """
    Names only, at INFO, and once; what switches protection off is a warning.
    """
    log_settings.cache_clear()
    caplog.set_level(logging.INFO, "pyspark_pykafka")
    useless = {"kafka.metric.reporters": "SECRET", "kafka.max.poll.records": "7"}
    unsafe = {"kafka.enable.ssl.certificate.verification": "false"}

    for _ in range(2):
        stream(**useless, **unsafe)

    assert [(record.levelname, record.message[:60]) for record in caplog.records] == [
        ("INFO", "Kafka settings without effect here: max.poll.records, metric"),
        ("WARNING", "kafka.enable.ssl.certificate.verification=false: any server "),
    ]
    assert "SECRET" not in caplog.text


def test_progress_stores() -> None:
    """
    Nowhere by default; a consumer group takes its name from the client's settings.
    """
    group = {"progressStore": "ConsumerGroup", "kafka.group.id": " g "}
    nodes = {"progressStore": "zookeeper", "zookeeperHosts": "a:1, b", "zookeeperId": "q-1"}

    assert stream().progress_store == NoStore()
    assert stream(**group).progress_store == ConsumerGroup("g")
    assert stream(**nodes).progress_store == ZooKeeperNodes(
        "a:1,b", "/pykafka", "q-1", 10_000, None, "open"
    )


@pytest.mark.parametrize(
    ("acl", "meant"), [({}, "creator"), ({"zookeeperAcl": "Readable"}, "readable")]
)
def test_the_user_of_zookeeper(acl: dict[str, str], meant: str) -> None:
    """
    Whoever gives one keeps the nodes to it unless told otherwise, and no text shows the password.
    """
    nodes = {"progressStore": "zookeeper", "zookeeperHosts": "a", "zookeeperId": "q"}
    options = stream(**nodes, zookeeperDigest="me:SE:CRET", zookeeperRoot="/a/b", **acl)

    assert isinstance(options.progress_store, ZooKeeperNodes)
    assert options.progress_store.digest == ("me", "SE:CRET")
    assert (options.progress_store.root, options.progress_store.acl) == ("/a/b", meant)
    assert "CRET" not in repr(options)


@pytest.mark.parametrize(
    ("options", "mistakes"),
    [
        ({"progressStore": "consumerGroup"}, ["kafka.group.id is missing; it must name"]),
        (
            {"progressStore": "zookeeper"},
            ["zookeeperHosts is missing; it must be: the s", "zookeeperId is missing; it must be"],
        ),
        (
            {"zookeeperId": "q", "zookeeperRoot": "/x"},
            ["zookeeperId is given, and progressStore is 'none'", "zookeeperRoot is given"],
        ),
        (
            {**ZOOKEEPER, "zookeeperDigest": "SECRET"},
            ["zookeeperDigest is '***'; it must be: a user"],
        ),
        ({**ZOOKEEPER, "zookeeperAcl": "creator"}, ["zookeeperDigest is missing; it must say who"]),
        ({**ZOOKEEPER, "zookeeperHosts": "a b"}, ["zookeeperHosts is 'a b'; it must be: the serv"]),
        ({**ZOOKEEPER, "zookeeperRoot": "x"}, ["zookeeperRoot is 'x'; it must be: a path"]),
        ({**ZOOKEEPER, "zookeeperId": "a/b"}, ["zookeeperId is 'a/b'; it must be: a name"]),
        ({**ZOOKEEPER, "zookeeperId": ".."}, ["zookeeperId is '..'; it must be: a name"]),
        ({**ZOOKEEPER, "zookeeperSessionTimeoutMs": "1"}, ["zookeeperSessionTimeoutMs is '1'"]),
    ],
)
def test_mistakes_about_progress_stores(options: dict[str, str], mistakes: list[str]) -> None:
    """
    What a store needs is asked for, what belongs to another one is refused, secrets are not told.
    """
    told = mistakes_of_stream({**MINIMAL, **options})

    assert len(told) == len(mistakes)
    for text, mistake in zip(mistakes, told, strict=True):
        assert text in mistake
        assert "SECRET" not in mistake


def test_committed_means_the_store() -> None:
    """
    With ZooKeeper no group is needed, in a batch neither.
    """
    options = {**ZOOKEEPER, "startingOffsets": "committed"}

    assert stream(**options).starting_offsets == batch(**options).starting_offsets == Committed()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"maxFetchMemory": "64 bytes"},
            "maxFetchMemory is '64 bytes'; it must be: a number of bytes with a unit (k, m, g)",
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
        ({"topic": "t"}, "'topic' is not valid in a streaming read; it belongs to: batch write"),
        ({"maxOffsetPerTrigger": "1"}, "not an option; did you mean 'maxOffsetsPerTrigger'?"),
        ({"sasl.password": "x"}, "not an option; did you mean 'kafka.sasl.password'?"),
        ({"kafak.group.id": "x"}, "not an option; did you mean 'kafka.group.id'?"),
        ({"zzz": "x"}, "'zzz' is not an option; see docs/options.md for all"),
        (
            {"spark.kafka.clusters.a.auth.bootstrap.servers": "x"},
            "librdkafka cannot use delegation tokens",
        ),
    ],
)
def test_mistakes_say_what_is_possible(options: dict[str, str], text: str) -> None:
    """
    A mistake names the option as it is spelled, what was given, and what it must be.
    """
    (mistake,) = mistakes_of_stream({**MINIMAL, **options})

    assert text in mistake


def test_all_mistakes_are_told_at_once() -> None:
    """
    One error lists everything, in the form that users know.
    """
    with pytest.raises(OptionsError) as caught:
        parse_stream_source(
            {"subscribe": "t", "failondataloss": "maybe", "maxoffsetpertrigger": "1"}
        )

    assert str(caught.value) == (
        "Spark options for 'pykafka' are wrong:\n"
        "- 'maxoffsetpertrigger' is not an option; did you mean 'maxOffsetsPerTrigger'?\n"
        "- failOnDataLoss is 'maybe'; it must be: one of: true, false\n"
        "- kafka.bootstrap.servers is missing; it names the brokers, as 'host:9092,host2:9092'"
    )


def test_sparks_own_options_pass() -> None:
    """
    What Spark adds by itself is not taken for a mistake.
    """
    assert batch(path="p", checkpointLocation="c", queryName="q") == batch()


def test_an_option_that_is_null_was_not_given() -> None:
    """
    M30: null stands for an option that is not set.
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
def test_any_offsets_are_read_back(offsets: dict[TopicPartition, int]) -> None:
    """
    Every document of offsets gives exactly its offsets, sorted, whatever its order.
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
        parse_stream_source({**SERVERS, "assign": '{"t":[0]}'}),
        parse_stream_source({**SERVERS, "subscribePattern": "t"}),
    ],
)
def test_options_cross_processes(options: SourceOptions) -> None:
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
def test_sizes_have_the_units_of_sparks_settings(text: str, size: int) -> None:
    """
    A number of bytes takes k, m and g, with or without a b, in any case.
    """
    assert parse_stream_source({**MINIMAL, "maxFetchMemory": text}).max_fetch_memory == size
