"""
The connector through Spark Connect, whose clients have neither a JVM nor the driver's process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.support.connect_server import connect_server
from tests.support.page_blocks import topics_of_page

from pyspark_pykafka.testing import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_pykafka.testing import KafkaCluster
    from pyspark_pykafka.testing.plugin import TopicFactory

JOB = Path(__file__).parent / "spark_connect_job.py"
SECONDS = 280
RECORDS = 12
POISON = b"poison"
#: The topics of docs/sql.md.
SQL_TOPICS = ("flights", "copies")

#: Where Spark describes the streaming query whose error it reports.
DESCRIPTION = "=== Streaming Query ==="
SPARK_LINES = 2
MISSPELT = "[INVALID_OPTIONS] 'startingoffset' is not an option; did you mean 'startingOffsets'?"
MISSING = "-missing' was not found within 5000 ms; create it, or correct the option"
#: The line of ours in the error of each mistake.
ERRORS = {
    "misspelt_in_a_batch": MISSPELT,
    "misspelt_in_a_stream": MISSPELT,
    "write_to_a_missing_topic": MISSING,
    "stream_to_a_missing_topic": MISSING,
    "record_that_is_not_json": "[KAFKA_UNDECODABLE_RECORD] cannot decode the record of ",
}


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """
    Return the address of a server, which starts slowly.
    """
    with connect_server(tmp_path_factory.mktemp("server")) as address:
        yield address


@pytest.fixture
def names(topic: TopicFactory, tmp_path: Path) -> dict[str, str]:
    """
    Return the names of the topics, the group and the folder of the job.
    """
    topics = {name: topic(partitions=2) for name in ("source", "written", "once", "dead", "table")}
    return {**topics, "group": f"{topics['source']}-group", "folder": str(tmp_path)}


def results_of_job(
    remote: str, cluster: KafkaCluster, names: dict[str, str], *steps: str
) -> dict[str, Any]:
    """
    Run steps of the job in a new client, and return the result of each.
    """
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    result = subprocess.run(
        [sys.executable, str(JOB), remote, cluster.bootstrap, *map(json.dumps, (names, steps))],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-5000:]
    results: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return results


def values(cluster: KafkaCluster, topic: str) -> list[bytes]:
    committed = {"isolation.level": "read_committed"}
    return sorted(record.value or b"" for record in cluster.consume(topic, committed))


def committed_offsets(cluster: KafkaCluster, names: dict[str, str]) -> int:
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": names["group"]}
    consumer = Consumer(settings)
    try:
        tps = [TopicPartition(names["source"], number) for number in range(2)]
        return sum(tp.offset for tp in consumer.committed(tps, timeout=20))
    finally:
        consumer.close()


@pytest.fixture
def records(names: dict[str, str], kafka_cluster: KafkaCluster) -> list[bytes]:
    """
    Return the values in the topic that the job reads.
    """
    values = [*(str(number).encode() for number in range(RECORDS - 1)), POISON]
    kafka_cluster.produce(names["source"], [Record(value=value) for value in values])
    return values


def test_a_server_runs_what_a_client_asks_for(
    remote: str, names: dict[str, str], kafka_cluster: KafkaCluster, records: list[bytes]
) -> None:
    """
    Reads, views, writes from two threads, exactly-once, poison records, listeners and the page of
    metrics work through a server.
    """
    results = results_of_job(
        remote,
        kafka_cluster,
        names,
        *("batch_read", "page", "sql", "batch_write", "exactly_once", "poison", "listeners"),
    )

    assert (results["batch_read"], results["sql"]) == (RECORDS, RECORDS)
    assert results["page"].startswith("struct<key:binary,value:binary,topic:string")
    assert values(kafka_cluster, names["written"]) == [
        b"from another thread",
        b"from the main thread",
    ]
    assert results["exactly_once"] == "ended"
    assert values(kafka_cluster, names["once"]) == sorted(records)
    assert results["poison"] == f"ended {RECORDS - 1}"
    assert values(kafka_cluster, names["dead"]) == [POISON]
    check_listeners(results["listeners"])
    assert committed_offsets(kafka_cluster, names) == RECORDS


# Without a server: test_sql.py has such tables, test_mistakes.py such errors.
@pytest.mark.soak
@pytest.mark.usefixtures("records")
def test_tables_and_errors_of_a_server(
    remote: str, names: dict[str, str], kafka_cluster: KafkaCluster
) -> None:
    """
    Tables are written and read with options; the errors of batches, streams, writes and tasks have
    one line of ours.
    """
    steps = ("tables", "counted_dead_letters", "errors")
    results = results_of_job(remote, kafka_cluster, names, *steps)

    assert results["tables"]["rows"] == [["k", "a"]] * 2
    assert "there are no options" in results["tables"]["without_options"]
    assert "INVALID_OPTIONS" in results["tables"]["without_columns"]
    assert "[STREAMING_CONNECT_SERIALIZATION_ERROR]" in results["counted_dead_letters"]
    check_errors(results["errors"])


@pytest.mark.soak
def test_the_page_on_sql_through_a_server(
    remote: str, names: dict[str, str], kafka_cluster: KafkaCluster
) -> None:
    """
    Each statement of docs/sql.md runs through a server: views, tables, INSERT INTO, and the views
    of `mount`, in the session and in a database.
    """
    with topics_of_page(kafka_cluster, *SQL_TOPICS):
        kafka_cluster.produce("flights", [Record(key=key, value=b"v") for key in (b"AA", b"UA")])
        result = results_of_job(remote, kafka_cluster, names, "sql_page")["sql_page"]
        copies = values(kafka_cluster, "copies")

    assert result["query"] == [["AA", 1], ["UA", 1]]
    assert result["views"] == [2, 2]
    assert copies == [b"V", b"V", b"v"]
    assert result["overwrite"]


@pytest.mark.soak
@pytest.mark.usefixtures("records")
def test_supervise_restarts_a_query_of_a_server(
    remote: str, names: dict[str, str], kafka_cluster: KafkaCluster
) -> None:
    """
    The client restarts a query whose function failed on the server, and each record arrives once; a
    query that lost records is not restarted.
    """
    steps = ("supervised", "supervised_data_loss")
    results = results_of_job(remote, kafka_cluster, names, *steps)

    assert results["supervised"] == {"failures": [[1, False, True]], "rows": RECORDS}
    assert results["supervised_data_loss"] == [[[1, True]], True]


def check_listeners(results: dict[str, Any]) -> None:
    """
    The auditor found the batch complete; page, log and values have the metrics of the query.
    """
    assert results["ended"] == "ended"
    assert results["complete"] == [True]
    assert results["read"] == RECORDS
    assert results["logged"] >= 1
    scraped = results["scraped"]
    assert scraped["pykafka_read_offsets_total"] == RECORDS
    assert scraped["pykafka_query_running"] == scraped["pykafka_query_starts_total"] == 1
    assert scraped["pykafka_position_offset"] == RECORDS
    assert scraped["pykafka_end_offset"] == RECORDS
    assert scraped["pykafka_lag_offsets"] == 0


def check_errors(errors: dict[str, str]) -> None:
    """
    Each error has one line of ours, and few of Spark's.
    """
    assert errors.keys() == ERRORS.keys()
    for mistake, error in errors.items():
        report, _, _ = error.strip().partition(DESCRIPTION)
        lines = [line for line in report.splitlines() if ERRORS[mistake] in line]
        assert (mistake, len(lines)) == (mistake, 1), error
        # Besides Spark's own line before the error of a task, and the SQLSTATE.
        assert len(report.splitlines()) <= 1 + SPARK_LINES, error
