"""
`pykafka peek` and `pykafka schema infer` on a topic in which most offsets have no record, as after
compaction or in a topic of transactions.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.stub_brokers import Behaviour, StubCluster, record_batch

from pyspark_pykafka.cli import main
from pyspark_pykafka.cli.record_counts import first_records, last_records
from pyspark_pykafka.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The only offsets with a record; the log starts at 0.
OFFSETS = list(range(5000, 21_000, 1000))


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """
    The address of a cluster with a sparse topic.
    """
    log = [record_batch(offset, [b'{"n%d":1}' % offset]) for offset in OFFSETS]
    with StubCluster(Behaviour(logs={("t", 0): log})) as cluster:
        yield cluster.bootstrap


@pytest.mark.parametrize(
    ("arguments", "offsets"),
    [
        ([], OFFSETS[:10]),
        (["--max", "12"], OFFSETS[:12]),
        (["--max", "99"], OFFSETS),
        (["--from-offset", "6001", "--max", "2"], [7000, 8000]),
        (["--last", "3"], OFFSETS[-3:]),
        (["--last", "12"], OFFSETS[-12:]),
        (["--last", "99"], OFFSETS),
        (["--last", "12", "--max", "2"], OFFSETS[-2:]),
    ],
)
def test_peek_counts_records(
    bootstrap: str, capsys: pytest.CaptureFixture[str], arguments: list[str], offsets: list[int]
) -> None:
    """
    The first ten records are shown, or the last ones; offsets without a record do not count.
    """
    assert (
        main(["peek", "--topic", "t", "--json", "--bootstrap-server", bootstrap, *arguments]) == 0
    )

    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["offset"] for line in lines] == offsets


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--max", "2"], ["n19000", "n20000"]),
        (["--max", "2", "--from", "0"], ["n5000", "n6000"]),
        (["--max", "99"], [f"n{offset}" for offset in OFFSETS]),
        (["--max", "99", "--from", "earliest"], [f"n{offset}" for offset in OFFSETS]),
    ],
)
def test_schema_of_a_number_of_records(
    bootstrap: str, capsys: pytest.CaptureFixture[str], arguments: list[str], names: list[str]
) -> None:
    """
    The sample has the requested number of records; offsets without a record do not count.
    """
    command = ["schema", "infer", "t", "--json", "--bootstrap-server", bootstrap]

    assert main([*command, *arguments]) == 0

    document = json.loads(capsys.readouterr().out)
    assert document["records"] == len(names)
    assert sorted(field["path"] for field in document["fields"]) == sorted(names)


@given(
    st.sets(st.tuples(st.integers(0, 2), st.integers(0, 99))),
    st.tuples(*[st.integers(0, 99)] * 3),
    st.tuples(*[st.integers(0, 100)] * 3),
    st.integers(1, 30),
)
def test_any_offsets_without_records(
    existing: set[tuple[int, int]], starts: tuple[int, ...], ends: tuple[int, ...], count: int
) -> None:
    """
    The first and the last records of each partition are returned, each of them once.
    """
    tps = [TopicPartition("t", number) for number in range(3)]

    def in_range(r: OffsetRange) -> list[int]:
        return sorted(o for n, o in existing if n == r.tp.partition and r.start <= o < r.end)

    def read(
        ranges: list[OffsetRange], max_records: int | None
    ) -> Iterator[tuple[OffsetRange, int]]:
        for offset_range in ranges:
            for offset in in_range(offset_range)[:max_records]:
                yield offset_range, offset

    limits = (dict(zip(tps, starts, strict=True)), dict(zip(tps, ends, strict=True)))
    first, last = ([*select(read, *limits, count)] for select in (first_records, last_records))
    for tp in tps:
        records = in_range(OffsetRange(tp, limits[0][tp], limits[1][tp]))
        assert [offset for found, offset in first if found == tp] == records[:count]
        assert sorted(offset for found, offset in last if found == tp) == records[-count:]
