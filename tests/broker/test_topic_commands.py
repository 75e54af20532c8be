"""
The commands `pykafka topic`, `produce`, `peek` and `schema` on a real broker.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from confluent_kafka import Producer
from tests.broker.test_protobuf_topics import described, messages
from tests.support.schema_registry import framed, running_registry

from pyspark_pykafka.cli import main
from pyspark_pykafka.cli.exit_codes import ExitCode
from pyspark_pykafka.testing import Record
from pyspark_pykafka.testing.plugin import unique_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark_pykafka.testing import KafkaCluster
    from pyspark_pykafka.testing.plugin import TopicFactory

    Run = Callable[..., str]

T0 = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], kafka_cluster: KafkaCluster) -> Run:
    """
    Return a function that runs a command on the cluster, and returns its output.
    """

    def running(*arguments: str, code: int = 0) -> str:
        exit_code = main([*arguments, "--bootstrap-server", kafka_cluster.bootstrap])
        output = capsys.readouterr()
        assert exit_code == code, output.err
        return output.err if code else output.out

    return running


def lines(output: str) -> list[Any]:
    """
    Return the records of JSON output.
    """
    return [json.loads(line) for line in output.splitlines()]


def timed(kafka_cluster: KafkaCluster, name: str, count: int) -> None:
    """
    Produce records v0, v1... a minute apart, alternately to two partitions.
    """
    records = [
        Record(
            f"v{number}".encode(),
            partition=number % 2,
            timestamp=int((T0 + timedelta(minutes=number)).timestamp() * 1000),
        )
        for number in range(count)
    ]
    kafka_cluster.produce(name, records)


def test_a_topic_lives_from_create_to_delete(run: Run) -> None:
    """
    A topic is created with the given partitions and settings, described, and deleted only with
    --execute.
    """
    unique = unique_name("lives")
    created = run("topic", "create", unique, "--partitions", "3", "--config", "retention.ms=1000")
    description = json.loads(run("topic", "describe", unique, "--json"))
    dry = run("topic", "delete", unique)
    deleted = run("topic", "delete", unique, "--execute")

    assert created == f"Created the topic {unique}.\n"
    assert [
        (partition["partition"], partition["start"], partition["end"])
        for partition in description["partitions"]
    ] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 0),
    ]
    assert dry.splitlines()[-1].startswith("Dry run: nothing was changed.")
    assert deleted.splitlines()[-1] == f"Deleted the topic {unique}."
    assert f"do not have the topic '{unique}'" in run(
        "topic", "describe", unique, code=ExitCode.NOT_FOUND
    )


def test_an_existing_topic_is_not_created(run: Run, topic: TopicFactory) -> None:
    """
    An existing topic is an error with exit code 1, but not with --if-not-exists.
    """
    name = topic()

    assert f"the topic '{name}' exists already" in run("topic", "create", name, code=1)
    assert run("topic", "create", name, "--if-not-exists") == f"The topic {name} exists already.\n"


def test_arguments_become_records(run: Run, topic: TopicFactory) -> None:
    """
    Each value is a record, with the key, the headers and the partition that were given.
    """
    name = topic(2)

    sent = run(
        *("produce", "--topic", name, "--key", "k", "--header", "h=1", "--partition", "1"),
        *("hello", "ünïcode"),
    )
    records = lines(run("peek", "--topic", name, "--json"))

    assert sent == "Sent: 2\n"
    assert [(r["partition"], r["offset"], r["key"], r["value"]) for r in records] == [
        (1, 0, "k", "hello"),
        (1, 1, "k", "ünïcode"),
    ]
    assert records[0]["headers"] == [["h", "1"]]


def test_lines_become_records(
    run: Run, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Each line of standard input is a record, whose key may come first; bytes stay as they are.
    """
    name = topic()
    text = io.TextIOWrapper(io.BytesIO(b"a:1\nb:x:y\r\nc:\xff\n"))
    monkeypatch.setattr("sys.stdin", text)

    sent = json.loads(run("produce", "--topic", name, "--key-separator", ":", "--json"))
    records = lines(run("peek", "--topic", name, "--json"))
    rows = run("peek", "--topic", name, "--hex").splitlines()

    assert sent == {"topic": name, "records": 3}
    assert [(r["key"], r["value"]) for r in records] == [
        ("a", "1"),
        ("b", "x:y"),
        ("c", {"base64": "/w=="}),
    ]
    assert [line.split()[-1] for line in rows] == ["31", "783a79", "ff"]


@pytest.mark.parametrize(
    ("start", "values"),
    [
        ([], ["v0", "v1", "v2", "v3", "v4", "v5"]),
        (["--max", "2"], ["v0", "v1"]),
        (["--from-offset", "2"], ["v4", "v5"]),
        (["--last", "1"], ["v4", "v5"]),
        (["--last", "99", "--max", "1"], ["v5"]),
        (["--from-time", "2026-01-01T00:02:30+00:00"], ["v3", "v4", "v5"]),
        (["--from=2026-01-01T00:02:30Z"], ["v3", "v4", "v5"]),
        (["--from=-1 offset"], ["v4", "v5"]),
        (["--from-time", "2030-01-01"], []),
        (["--from-end"], []),
        (["--partition", "1"], ["v1", "v3", "v5"]),
    ],
)
def test_peek_starts_at_the_requested_position(
    run: Run, topic: TopicFactory, kafka_cluster: KafkaCluster, start: list[str], values: list[str]
) -> None:
    """
    Records are printed in the order of their timestamps, from an offset, a time or the end.
    """
    name = topic(2)
    timed(kafka_cluster, name, 6)

    records = lines(run("peek", "--topic", name, "--json", *start))

    assert [record["value"] for record in records] == values


def test_peek_counts_records_and_not_offsets(
    run: Run, topic: TopicFactory, kafka_cluster: KafkaCluster
) -> None:
    """
    Transaction markers have offsets but are not records; --last shows all records of the topic.
    """
    name = topic()
    producer = Producer(
        {"bootstrap.servers": kafka_cluster.bootstrap, "transactional.id": f"{name}-writer"}
    )
    producer.init_transactions()
    for number in range(15):
        producer.begin_transaction()
        producer.produce(name, f"v{number}".encode())
        producer.commit_transaction()

    first = lines(run("peek", "--topic", name, "--json"))
    last = lines(run("peek", "--topic", name, "--json", "--last", "12"))

    assert [record["value"] for record in first] == [f"v{number}" for number in range(10)]
    assert [record["offset"] for record in first] == list(range(0, 20, 2))
    assert [record["value"] for record in last] == [f"v{number}" for number in range(3, 15)]


def test_control_characters_do_not_reach_the_terminal(run: Run, topic: TopicFactory) -> None:
    """
    Control characters of records are escaped, since they could clear or rewrite the screen.
    """
    name = topic()
    run("produce", "--topic", name, "a\x1b[2Jb")

    assert run("peek", "--topic", name).split()[-1] == "a\\x1b[2Jb"


def test_a_followed_topic_shows_new_records(
    run: Run, topic: TopicFactory, kafka_cluster: KafkaCluster
) -> None:
    """
    Records that arrive later are shown until a signal ends the command.
    """
    name = topic()
    run("produce", "--topic", name, "before")
    command = ["peek", "--topic", name, "--follow", "--json"]
    servers = ["--bootstrap-server", kafka_cluster.bootstrap]

    with subprocess.Popen(
        [sys.executable, "-m", "pyspark_pykafka.cli", *command, *servers],
        stdout=subprocess.PIPE,
        text=True,
    ) as peek:
        assert peek.stdout is not None
        first = json.loads(peek.stdout.readline())
        run("produce", "--topic", name, "after")
        second = json.loads(peek.stdout.readline())
        peek.terminate()
        peek.communicate(timeout=30)

    assert (first["value"], second["value"]) == ("before", "after")
    assert peek.returncode == 130


@pytest.mark.parametrize(
    ("arguments", "text", "code"),
    [
        (["topic", "describe", "misspelt"], "do not have the topic 'misspelt'", 3),
        (["topic", "delete", "misspelt", "--execute"], "do not have the topic 'misspelt'", 3),
        (["peek", "--topic", "misspelt"], "do not have the topic 'misspelt'", 3),
        (["produce", "--topic", "misspelt", "v", "--timeout", "1"], "topic 'misspelt' was not", 3),
        (["topic", "create", "a b"], "'a b' is not a legal topic name", 2),
    ],
)
def test_a_misspelt_topic_is_an_error(run: Run, arguments: list[str], text: str, code: int) -> None:
    """
    The error names the topic, and the exit code says whether the name is invalid or the topic is
    missing.
    """
    assert text in run(*arguments, code=code)


def test_doctor_finds_a_record_from_the_future(
    kafka_cluster: KafkaCluster, run: Run, topic: TopicFactory
) -> None:
    """
    The doctor warns of a clock if any record, even one before the last, has a timestamp half an
    hour ahead. It does not warn of records of last year.
    """
    name, past = topic(2), topic(1)
    now = round(datetime.now(UTC).timestamp() * 1000)
    times = [now - 1000, now + 1_800_000, now]
    kafka_cluster.produce(name, [Record(b"v", partition=1, timestamp=time) for time in times])
    kafka_cluster.produce(past, [Record(b"v", timestamp=now - 31_536_000_000)])

    findings = json.loads(run("doctor", "--json", "--read", name, "--read", past))["findings"]

    ahead, behind = [finding for finding in findings if finding["check"] == "clock"]
    assert ahead["status"] == "warning"
    assert f"the newest record of {name} is from " in ahead["text"]
    assert "later than this machine's clock" in ahead["text"]
    assert behind["status"] == "ok"


def test_doctor_finds_nothing_wrong(run: Run, topic: TopicFactory) -> None:
    """
    On a broker without ACLs, the doctor's checks for an exactly-once query pass.
    """
    name = topic(2)
    query = ["--read", name, "--write", name, "--group", name, "--prefix", name]

    findings = json.loads(run("doctor", "--json", *query))["findings"]

    checks = {finding["check"]: finding for finding in findings}
    assert checks[f"topic {name}"]["text"] == "2 partitions, WRITE allowed"
    assert checks[f"ledger {name}-ledger"]["text"] == "does not exist; a stream creates it"
    assert checks[f"transactional ids {name}*"]["status"] == "ok"
    assert checks["engine"]["text"] == "wire, for reads and writes"
    assert checks["broker version"]["text"].startswith("Kafka ")


def test_schema_of_a_topic(run: Run, kafka_cluster: KafkaCluster, topic: TopicFactory) -> None:
    """
    The schema of values or keys is inferred from a sample at the log's end or from a position on.
    """
    name = topic(2)
    values = [b'{"old":true}', b'{"id":1}', b'\0\0\0\0\1{"id":2.5}', b"{", None, b'{"id":3}']
    kafka_cluster.produce(name, [Record(value, b'"k"', partition=0) for value in values])

    assert run("schema", "infer", name) == "old BOOLEAN, id DOUBLE\n"
    assert run("schema", "infer", name, "--max", "10") == "id DOUBLE\n"
    assert run("schema", "infer", name, "--max", "2", "--from", "1") == "id BIGINT\n"
    assert run("schema", "infer", name, "--column", "key") == "STRING\n"
    report = json.loads(run("schema", "infer", name, "--json"))
    assert [report[name] for name in ("schema", "records", "empty", "bad")] == [
        *("old BOOLEAN, id DOUBLE", 6, 1, 1)
    ]
    assert report["firstBad"] == f"{name}-0 at offset 3"
    assert report["fields"][1] == {
        "path": "id",
        "type": "DOUBLE",
        "seen": 3,
        "of": 4,
        "kinds": {"number": 3},
        "note": "",
    }
    empty = run("schema", "infer", name, "--from", "3", "--max", "4", code=ExitCode.FAILED)
    assert "no JSON was found in 2 records" in empty


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "map", "values": "bytes"}},
    ],
}


def avro_order(number: int) -> bytes:
    return avro(ORDER, {"id": number, "at": T0, "tags": {"k": b"\xff"}})


def test_peek_decodes_avro(
    run: Run, kafka_cluster: KafkaCluster, topic: TopicFactory, tmp_path: Path
) -> None:
    """
    Values are decoded with the registry's schemas, as in a query; a bad one is shown with the
    reason and its bytes, and the others are decoded.
    """
    name = topic()
    with running_registry() as registry:
        number = registry.add(f"{name}-value", ORDER)
        values = [framed(number, avro_order(1)), b"bad", None, framed(number, avro_order(2))]
        kafka_cluster.produce(name, [Record(value, b"k") for value in values])
        config = tmp_path / "client.properties"
        config.write_text(f"schema.registry.url={registry.url}\n")
        decoding = ("--topic", name, "--value-format", "avro", "--command-config", str(config))

        records = lines(run("peek", *decoding, "--json"))
        table = run("peek", *decoding, "--max", "1")

    order = {"id": 1, "at": T0.isoformat(), "tags": {"k": {"base64": "/w=="}}}
    nothing = dict.fromkeys(order)
    assert [record["value"] for record in records] == [order, nothing, None, {**order, "id": 2}]
    assert [record.get("raw") for record in records] == [None, "bad", None, None]
    assert "value" in records[1]["error"]
    tags = json.dumps({**order, "tags": {"k": "\\xff"}}, ensure_ascii=False)
    assert table.split("  ", 2)[2] == f"k  {tags}\n"


CUSTOMER = {
    "type": "record",
    "name": "Value",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
}
CHANGE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", CUSTOMER]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"]},
    ],
}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}


def avro(schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), value)
    return file.getvalue()


def test_peek_decodes_keys_and_change_events(
    run: Run, kafka_cluster: KafkaCluster, topic: TopicFactory, tmp_path: Path
) -> None:
    """
    Keys are decoded in the format that --key-format names; a Debezium event is shown with its rows
    and operation.
    """
    name = topic()
    with running_registry() as registry:
        key = framed(registry.add(f"{name}-key", KEY), avro(KEY, {"id": 7}))
        events: list[dict[str, Any]] = [
            {"before": None, "after": {"id": 7, "name": "ann"}, "op": "c", "ts_ms": 1000},
            {"before": {"id": 7, "name": "ann"}, "after": None, "op": "d", "ts_ms": None},
        ]
        number = registry.add(f"{name}-value", CHANGE)
        values = [framed(number, avro(CHANGE, event)) for event in events]
        kafka_cluster.produce(name, [Record(value, key) for value in (*values, None)])
        config = tmp_path / "client.properties"
        config.write_text(f"schema.registry.url={registry.url}\n")
        decoding = ("--topic", name, "--command-config", str(config), "--json")

        records = lines(
            run("peek", *decoding, "--key-format", "avro", "--value-format", "debezium-avro")
        )
        keys = lines(run("peek", *decoding, "--key-format", "avro", "--max", "1"))

    assert [record["key"] for record in (*records, *keys)] == [{"id": 7}] * 4
    created, deleted, tombstone = (record["value"] for record in records)
    assert (created["op"], created["after"]["name"], created["before"]) == ("c", "ann", None)
    assert (deleted["op"], deleted["before"]["name"], deleted["after"]) == ("d", "ann", None)
    assert tombstone is None


def test_peek_decodes_protobuf(
    run: Run, kafka_cluster: KafkaCluster, topic: TopicFactory, tmp_path: Path
) -> None:
    """
    Without a registry, messages are decoded with a descriptor file; with --hex, their bytes fields
    are hexadecimal, too.
    """
    name = topic()
    kafka_cluster.produce(name, [Record(messages()[1], b"\xff")])
    (tmp_path / "orders.desc").write_bytes(described().SerializeToString())
    options = (f"valueSchema={tmp_path / 'orders.desc'}", "valueMessageName=shop.Order")
    decoding = [argument for option in options for argument in ("--option", option)]

    (record,) = lines(
        run("peek", "--topic", name, "--value-format", "protobuf", *decoding, "--json", "--hex")
    )

    assert record["key"] == "ff"
    value = record["value"]
    assert (value["f12"], value["f4"], value["counts"]["k"]["x"]) == ("00ff", str(2**64 - 1), 3)


def test_mistakes_in_options_of_peek(run: Run, topic: TopicFactory) -> None:
    """
    An option without a format, and a format without a schema, are errors that name what is missing.
    """
    name, wrong = topic(), ExitCode.WRONG_ARGUMENTS

    option = run("peek", "--topic", name, "--option", "valueSchema=x", code=wrong)
    assert "set --value-format or --key-format" in option
    avro = ("peek", "--topic", name, "--value-format", "avro")
    assert "valueSchema" in run(*avro, code=wrong)
    flat = run(
        *avro,
        "--option",
        f"valueSchema={json.dumps(ORDER)}",
        "--option",
        "flatten=true",
        code=wrong,
    )
    assert "flatten is true; leave it out" in flat
