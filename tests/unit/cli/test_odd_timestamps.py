"""
Commands on records whose timestamps are not valid dates, or are not times at all.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.support.record_batches import Record, batch_of
from tests.support.stub_brokers import Behaviour, StubCluster, StubTransaction

from pyspark_pykafka.cli import main
from pyspark_pykafka.cli.decoded_records import json_values

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Timestamps in milliseconds, and what `peek` shows. -1 is Kafka's number for no timestamp.
TIMES = {
    -(2**63): "-9223372036854775808 ms since 1970",
    -5: "1969-12-31T23:59:59.995+00:00",
    -1: None,
    0: "1970-01-01T00:00:00.000+00:00",
    253_402_300_800_000: "253402300800000 ms since 1970",
    2**62: "4611686018427387904 ms since 1970",
    2**63 - 1: "9223372036854775807 ms since 1970",
}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """
    The address of a cluster with a record of each timestamp, and an open transaction.
    """
    log = [batch_of(Record(offset, time)).encode() for offset, time in enumerate(TIMES)]
    transaction = StubTransaction(7, state="Ongoing", started_ms=2**62)
    behaviour = Behaviour(logs={("t", 0): log}, transactions={"p-1": transaction})
    with StubCluster(behaviour) as cluster:
        yield cluster.bootstrap


def run(capsys: pytest.CaptureFixture[str], bootstrap: str, *arguments: str) -> str:
    """
    Run a command that must succeed, and return its output.
    """
    code = main([*arguments, "--bootstrap-server", bootstrap])
    output = capsys.readouterr()
    assert (code, output.err) == (0, "")
    return output.out


def test_peek_shows_any_timestamp(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    """
    Each record is shown with its timestamp, which is a number if it is not a valid date.
    """
    text = run(capsys, bootstrap, "peek", "--topic", "t")
    documents = run(capsys, bootstrap, "peek", "--topic", "t", "--json")

    assert [line.split("  ")[1] for line in text.splitlines()] == [t or "-" for t in TIMES.values()]
    assert [json.loads(line)["timestamp"] for line in documents.splitlines()] == [*TIMES.values()]


def test_peek_of_decoded_records_shows_any_timestamp(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    The timestamp of a record does not keep its value from being decoded.
    """
    decoding = ("--value-format", "avro", "--option", 'valueSchema="string"')
    text = run(capsys, bootstrap, "peek", "--topic", "t", "--json", *decoding)

    assert [json.loads(line)["timestamp"] for line in text.splitlines()] == [*TIMES.values()]


def test_transactions_are_listed_whatever_their_start(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    The start of a transaction is shown in milliseconds if it is not a valid date.
    """
    text = run(capsys, bootstrap, "transactions", "list", "--prefix", "p")

    assert text.splitlines()[1].endswith("4611686018427387904 ms since 1970")


def test_peek_from_a_time_after_the_year_9999(bootstrap: str) -> None:
    """
    A time after the year 9999 in UTC is a time like any other.
    """
    arguments = ["peek", "--topic", "t", "--from-time", "9999-12-31T23:59:59-12:00"]

    assert main([*arguments, "--bootstrap-server", bootstrap]) == 0


@pytest.mark.parametrize("time", ["0001-01-01T00:00", "1969-12-31T23:59:59.999Z"])
def test_peek_from_a_time_before_1970(
    bootstrap: str, capsys: pytest.CaptureFixture[str], time: str
) -> None:
    """
    A time before 1970 is a wrong argument: -1 and -2 ms are Kafka's numbers for latest and
    earliest.
    """
    arguments = ["peek", "--topic", "t", "--from-time", time, "--bootstrap-server", bootstrap]
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    assert caught.value.code == 2
    assert "it must be: 1970 or later" in capsys.readouterr().err


_FAR = 2**62


@pytest.mark.parametrize(
    ("kind", "number", "text"),
    [
        (pa.timestamp("us", tz="UTC"), 0, "1970-01-01T00:00:00+00:00"),
        (pa.timestamp("us", tz="UTC"), _FAR, f"{_FAR} us since 1970"),
        (pa.timestamp("us"), -_FAR, f"{-_FAR} us since 1970"),
        (pa.date32(), 0, "1970-01-01"),
        (pa.date32(), 2**30, f"{2**30} days since 1970"),
        (pa.duration("us"), _FAR, "53375995 days, 14:00:27.387904"),
        (pa.time64("us"), 1, "00:00:00.000001"),
        (pa.time64("us"), _FAR, f"{_FAR} us since midnight"),
    ],
)
def test_decoded_times_of_any_size(kind: pa.DataType, number: int, text: str) -> None:
    """
    A decoded value that is not a valid date or time is shown as its number, at any depth.
    """
    column = pa.array([number, None], pa.int32() if kind == pa.date32() else pa.int64()).view(kind)
    nested = pa.StructArray.from_arrays([column], names=["at"])
    lists = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), nested)
    maps = pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["k"]), column[:1])

    assert json_values(column) == [text, None]
    assert json_values(lists) == [[{"at": text}, {"at": None}]]
    assert json_values(maps) == [{"k": text}]
