"""
The statistics, checks, arguments and outputs of the benchmark.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from bench import results as results_module
from bench.arguments import parse
from bench.cases import FETCH_ONLY, JVM, JVM_TUNED, WRITERS, Case, TopicSpec, shuffled_rounds
from bench.chart import draw
from bench.fetch_only import FetchOnly
from bench.figures import IncompleteError, check_records, paired_speedup, percentile, spread
from bench.measurement import Measurement, Series
from bench.reads import options_for
from bench.report import ratio_lines, table
from bench.results import Results, load
from bench.values import keys, samples
from bench.writes import writes_to_kafka
from tests.support.stub_behaviour import FETCH
from tests.support.stub_brokers import Behaviour, StubCluster

if TYPE_CHECKING:
    from pathlib import Path

ABOUT = {
    "date": "2026-01-31",
    "versions": {"pykafka": "1", "commit": "abc", "spark": "4", "kafka": "4", "python": "3"},
    "machine": {"cpu": "a CPU", "cores": 2},
}


@pytest.fixture
def measurement() -> Measurement:
    """
    Return three rounds; the second was slow for all contenders.
    """
    series = {
        "jvm": Series((4.0, 8.0, 4.4), (8.0, 8.0, 8.0)),
        "wire": Series((1.0, 2.0, 1.0), (2.0, 2.0, 3.0), 200_000_000),
        "ceiling": Series((0.8, 1.6, 0.8), (1.0, 1.0, 1.0)),
    }
    return Measurement("batch-100B", "batch", series, 2_000_000, {"size": 100})


@pytest.fixture
def writes() -> Measurement:
    """
    Return two rounds of writers, to be compared with a second contender, ``jvm-tuned``.
    """
    series = {
        "jvm": Series((8.0, 8.0)),
        "jvm-tuned": Series((4.0, 2.0)),
        "wire": Series((2.0, 2.0), (1.0, 1.0)),
        "ceiling": Series((1.0, 1.0)),
    }
    return Measurement("write-100B", "write", series, 1_000_000, also=("jvm-tuned",))


@pytest.fixture
def results(measurement: Measurement, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    """
    Return results in a temporary folder.
    """
    monkeypatch.setattr(results_module, "FOLDER", tmp_path)
    return Results("try", ABOUT, [measurement], {"wire": 200_000_000}, 4_000_000_000)


def test_spread_is_median_and_extremes() -> None:
    """
    The median of an even number of values is the mean of the two middle ones.
    """
    measured = spread([4.0, 1.0, 2.0, 3.0])

    assert (measured.median, measured.min, measured.max) == (2.5, 1.0, 4.0)


def test_spread_needs_a_value() -> None:
    """
    Without values, ValueError is raised.
    """
    with pytest.raises(ValueError, match="at least one value"):
        spread([])


def test_ratios_are_paired() -> None:
    """
    A slowdown of a whole round does not affect the ratio.
    """
    speedup = paired_speedup([1.0, 10.0, 1.0], [3.0, 30.0, 3.0])

    assert (speedup.median, speedup.min, speedup.max) == (3.0, 3.0, 3.0)


def test_unpaired_rounds_are_refused() -> None:
    """
    Contenders with different numbers of rounds cannot be compared.
    """
    with pytest.raises(ValueError, match="longer than argument 1"):
        paired_speedup([1.0], [1.0, 2.0])


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1.0), (50, 50.0), (99, 99.0), (99.5, 100.0), (100, 100.0)]
)
def test_percentile_is_one_of_the_values(percent: float, expected: float) -> None:
    """
    At least ``percent`` percent of the values are less than or equal to the percentile.
    """
    assert percentile([float(value) for value in range(100, 0, -1)], percent) == expected


def test_percentile_needs_a_value() -> None:
    """
    Without values, ValueError is raised.
    """
    with pytest.raises(ValueError, match="at least one value"):
        percentile([], 50)


@pytest.mark.parametrize("delivered", [0, 99, 101])
def test_incomplete_read_is_refused(delivered: int) -> None:
    """
    Missing or duplicate records raise an error with both numbers.
    """
    with pytest.raises(
        IncompleteError, match=f"wire delivered {delivered} records instead of 100,"
    ) as caught:
        check_records("wire", 100, delivered)

    assert (caught.value.expected, caught.value.actual) == (100, delivered)


def test_complete_read_is_accepted() -> None:
    """
    The expected number of records raises no error.
    """
    check_records("wire", 100, 100)


def test_measurement_has_ratios_rates_and_cpu_seconds(measurement: Measurement) -> None:
    """
    Ratios are relative to the JVM connector and to the ceiling; rates are medians.
    """
    assert [name for name, _ in measurement.ratios()] == [
        "batch-100B-wire/jvm",
        "batch-100B-ceiling/jvm",
        "batch-100B-wire/ceiling",
    ]
    assert str(measurement.speedup("wire")) == "4.00 (4.00..4.40)"
    assert measurement.records_per_second("wire") == 2_000_000
    assert measurement.cpu_per_million("jvm") == 4.0


def test_quick_output_has_one_line_per_ratio(measurement: Measurement) -> None:
    """
    The quick run prints the name and the ratio only.
    """
    assert list(ratio_lines([measurement])) == [
        "batch-100B-wire/jvm 4.00",
        "batch-100B-ceiling/jvm 5.00",
        "batch-100B-wire/ceiling 0.80",
    ]


def test_table_has_a_row_for_each_reader(results: Results) -> None:
    """
    A row holds the rate, the ratio with its spread, the share of the ceiling, CPU and memory.
    """
    row = next(line for line in table(results).splitlines() if " wire " in line)

    assert row.split() == [
        "batch-100B", "wire", "2,000,000", "4.00", "4.00..4.40", "80%", "1.00", "200",
    ]  # fmt: skip


def test_writers_are_compared_with_two_bases(writes: Measurement) -> None:
    """
    Ratios are relative to the JVM sink with defaults, to the tuned one and to the ceiling.
    """
    assert [(name, ratio.median) for name, ratio in writes.ratios()] == [
        ("write-100B-jvm-tuned/jvm", 3.0),
        ("write-100B-wire/jvm", 4.0),
        ("write-100B-ceiling/jvm", 8.0),
        ("write-100B-wire/jvm-tuned", 1.5),
        ("write-100B-ceiling/jvm-tuned", 3.0),
        ("write-100B-jvm-tuned/ceiling", 0.375),
        ("write-100B-wire/ceiling", 0.5),
    ]


def test_table_of_writers_has_both_ratios(results: Results, writes: Measurement) -> None:
    """
    Writers have a separate table, with both ratios and their spreads in each row.
    """
    results.measurements.append(writes)

    rows = [line.split() for line in table(results).splitlines()]

    assert [
        "write-100B", "wire", "500,000", "4.00", "4.00..4.00", "1.50", "1.00..2.00", "-", "50%",
        "1.00", "-",
    ] in rows  # fmt: skip
    assert len(results.measurements[0].series) + len(writes.series) == len(
        [row for row in rows if row and row[0] in {"batch-100B", "write-100B"}]
    )


def test_results_round_trip_through_their_file(results: Results, writes: Measurement) -> None:
    """
    Loaded results equal the saved ones, and the file also has the ratios.
    """
    results.measurements.append(writes)
    results.save()

    assert load(results.path) == results
    document = json.loads(results.path.read_text())
    assert document["ratios"]["batch-100B-wire/jvm"] == {"median": 4.0, "min": 4.0, "max": 4.4}


def test_older_results_load(results: Results) -> None:
    """
    In a file without the field ``also``, contenders are compared with the base alone.
    """
    results.save()
    document = json.loads(results.path.read_text())
    for measurement in document["measurements"]:
        del measurement["also"]
    results.path.write_text(json.dumps(document))

    assert load(results.path) == results


def test_chart_is_written_as_png_and_svg(results: Results, writes: Measurement) -> None:
    """
    A PNG and an SVG are written beside the JSON file.
    """
    results.measurements.append(writes)

    png, svg = draw(results)

    assert png.read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in svg.read_bytes()


def test_results_without_ratios_have_no_chart(results: Results) -> None:
    """
    Without a comparison with the JVM connector, no empty chart is written.
    """
    results.measurements[:] = [
        replace(measurement, kind="audit") for measurement in results.measurements
    ]

    assert draw(results) == []
    assert not results.path.with_suffix(".png").exists()


def test_case_name_leaves_out_defaults() -> None:
    """
    No compression and two partitions are not part of the name.
    """
    assert Case("batch", TopicSpec(100, "none", 2, 1)).name == "batch-100B"
    assert Case("stream", TopicSpec(1024, "lz4", 8, 1)).name == "stream-1KB-lz4-8p"


def test_rounds_are_shuffled_reproducibly() -> None:
    """
    Each round has all names; orders differ between rounds but not between runs.
    """
    rounds = shuffled_rounds(["a", "b", "c"], 20, "seed")

    assert all(sorted(order) == ["a", "b", "c"] for order in rounds)
    assert len({tuple(order) for order in rounds}) > 1
    assert rounds == shuffled_rounds(["a", "b", "c"], 20, "seed")


def test_quick_run_measures_two_rows() -> None:
    """
    The quick run reads uncompressed values of 100 B and 1 KB from two partitions, in batch.
    """
    plan = parse(["--quick"], "unnamed")

    assert [Case(mode, topic).name for topic in plan.topics for mode in plan.modes] == [
        "batch-100B",
        "batch-1KB",
    ]
    assert plan.parts == ("throughput",)


def test_full_run_measures_every_combination() -> None:
    """
    The full run has three sizes and three codecs in two partitions, in batch and as a stream, for
    five rounds.
    """
    plan = parse([], "unnamed")

    assert len(plan.topics) == 9
    assert {topic.partitions for topic in plan.topics} == {2}
    assert plan.modes == ("batch", "stream")
    assert (plan.rounds, plan.name) == (5, "unnamed")


def test_default_writes_are_small_records_to_two_partitions() -> None:
    """
    By default, every writer writes values of 100 B and 1 KB, uncompressed, to two partitions.
    """
    plan = parse(["--parts", "writes"], "unnamed")

    assert [Case("write", spec).name for spec in plan.written] == ["write-100B", "write-1KB"]
    assert plan.writers == tuple(WRITERS.values())


def test_writers_and_their_topics_can_be_chosen() -> None:
    """
    Sizes, partitions and records use the same arguments as reads.
    """
    arguments = "--writers jvm,jvm-tuned --sizes 500 --partitions 8 --records 7"

    plan = parse(arguments.split(), "unnamed")

    assert plan.writers == (JVM, JVM_TUNED)
    assert plan.written == (TopicSpec(500, "none", 8, 7),)


def test_conf_takes_spark_settings() -> None:
    """
    A setting is split at the first equals sign.
    """
    plan = parse(["--conf", "spark.a=b=c", "--conf", "spark.d="], "unnamed")

    assert plan.conf == {"spark.a": "b=c", "spark.d": ""}
    assert parse([], "unnamed").conf == {}


def test_ceiling_and_source_do_not_write_to_kafka() -> None:
    """
    All writers except the ceiling and the source write to a topic.
    """
    outside = {name for name, writer in WRITERS.items() if not writes_to_kafka(writer)}

    assert outside == {"ceiling", "source"}


def test_unknown_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """
    The message names the invalid value and the valid ones.
    """
    with pytest.raises(SystemExit, match="2"):
        parse(["--codecs", "none,lzo"], "unnamed")

    assert "'lzo' is not one of: none, lz4" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        parse(["--conf", "spark.a"], "unnamed")

    assert "'spark.a' is not a setting; it must be name=value" in capsys.readouterr().err


def test_fetch_only_must_be_chosen_and_reads_only_batches(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """
    The contender that does not decode is not measured by default, and has no streaming read.
    """
    chosen = ["--contenders", "jvm,fetch-only"]

    assert FETCH_ONLY not in parse([], "unnamed").contenders
    assert parse([*chosen, "--modes", "batch"], "unnamed").contenders == (JVM, FETCH_ONLY)
    with pytest.raises(SystemExit, match="2"):
        parse(chosen, "unnamed")
    assert "fetch-only has no streaming read" in capsys.readouterr().err


def test_fetch_only_yields_as_many_rows_as_the_topic_has_records() -> None:
    """
    Each partition is fetched to its end, over several responses, and its records are counted.
    """
    topic = TopicSpec(100, "none", 2, 2000)
    case = Case("batch", topic)
    behaviour = Behaviour(topics={topic.name: 2}, high_watermark=1000, batch_records=70)
    with StubCluster(behaviour) as stubs:
        reader: Any = FetchOnly(options_for(FETCH_ONLY, case, stubs.bootstrap)).reader(None)
        rows = [
            sum(batch.num_rows for batch in reader.read(partition))
            for partition in reader.partitions()
        ]
        requests = stubs.stats()["requests"]

    assert rows == [1000, 1000]
    assert requests[FETCH] > 4


@pytest.mark.parametrize("size", [100, 1024])
def test_values_have_their_size_and_are_reproducible(size: int) -> None:
    """
    Every run has the same values, all of the requested size and all different.
    """
    values = samples(size)

    assert {len(value) for value in values} == {size}
    assert len(set(values)) == len(values)
    assert values == samples(size)


def test_pairs_of_key_and_value_differ() -> None:
    """
    Keys and values repeat with different periods, so that no pair repeats.
    """
    all_keys, values = keys(), samples(100)

    assert {len(key) for key in all_keys} == {8}
    assert (
        len({(number % len(all_keys), number % len(values)) for number in range(100_000)})
        == 100_000
    )
