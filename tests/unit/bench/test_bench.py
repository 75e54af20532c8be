"""
The figures of the benchmark: statistics, refusals, and what is written from them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from bench import results as results_module
from bench.arguments import parse
from bench.cases import JVM, JVM_TUNED, WRITERS, Case, TopicSpec, shuffled_rounds
from bench.chart import draw
from bench.figures import ShortReadError, check_records, percentile, spread, times_as_fast
from bench.measurement import Measurement, Series
from bench.report import ratio_lines, table
from bench.results import Results, load
from bench.values import keys, samples
from bench.writes import in_kafka

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
    Return three rounds in which the second was slow for everyone.
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
    Return two rounds of writers, with another base beside the usual one.
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
    Return results in a folder of the test's own.
    """
    monkeypatch.setattr(results_module, "FOLDER", tmp_path)
    return Results("try", ABOUT, [measurement], {"wire": 200_000_000}, 4_000_000_000)


def test_spread_is_median_and_extremes() -> None:
    """
    The middle of an even number of values lies between the two in the middle.
    """
    found = spread([4.0, 1.0, 2.0, 3.0])

    assert (found.middle, found.low, found.high) == (2.5, 1.0, 4.0)


def test_spread_of_nothing_is_refused() -> None:
    """
    Without a value there is no figure.
    """
    with pytest.raises(ValueError, match="at least one value"):
        spread([])


def test_ratios_are_of_pairs() -> None:
    """
    A disturbance that slows a whole round does not show in the ratio.
    """
    found = times_as_fast(ours=[1.0, 10.0, 1.0], theirs=[3.0, 30.0, 3.0])

    assert (found.middle, found.low, found.high) == (3.0, 3.0, 3.0)


def test_rounds_that_do_not_pair_are_refused() -> None:
    """
    A contender that ran less often can't be compared.
    """
    with pytest.raises(ValueError, match="longer than argument 1"):
        times_as_fast([1.0], [1.0, 2.0])


@pytest.mark.parametrize(
    ("percent", "found"), [(0, 1.0), (50, 50.0), (99, 99.0), (99.5, 100.0), (100, 100.0)]
)
def test_percentile_is_one_of_the_values(percent: float, found: float) -> None:
    """
    At least so many percent of the values are not greater.
    """
    assert percentile([float(one) for one in range(100, 0, -1)], percent) == found


def test_percentile_of_nothing_is_refused() -> None:
    """
    Without a value there is no figure.
    """
    with pytest.raises(ValueError, match="at least one value"):
        percentile([], 50)


@pytest.mark.parametrize("found", [0, 99, 101])
def test_read_with_other_records_is_refused(found: int) -> None:
    """
    Records that are missing or doubled refuse the read, and the message has the numbers.
    """
    with pytest.raises(ShortReadError, match=f"wire delivered {found} records of 100;") as caught:
        check_records("wire", 100, found)

    assert (caught.value.wanted, caught.value.found) == (100, found)


def test_whole_read_is_accepted() -> None:
    """
    The right number of records raises nothing.
    """
    check_records("wire", 100, 100)


def test_measurement_gives_ratios_and_costs(measurement: Measurement) -> None:
    """
    Ratios are over the JVM connector and over the ceiling; rates are medians.
    """
    assert [name for name, _ in measurement.ratios()] == [
        "batch-100B-wire/jvm",
        "batch-100B-ceiling/jvm",
        "batch-100B-wire/ceiling",
    ]
    assert str(measurement.speedup("wire")) == "4.00 (4.00..4.40)"
    assert measurement.records_per_second("wire") == 2_000_000
    assert measurement.cpu_per_million("jvm") == 4.0


def test_each_ratio_is_a_line(measurement: Measurement) -> None:
    """
    The quick run's output is the name and the ratio, nothing else.
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


def test_writers_are_held_against_two(writes: Measurement) -> None:
    """
    Ratios are over the JVM sink with its defaults, over the tuned one, and over the ceiling.
    """
    assert [(name, ratio.middle) for name, ratio in writes.ratios()] == [
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
    Writers have a table of their own, in which a row holds both ratios with their spreads.
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


def test_results_come_back_from_their_file(results: Results, writes: Measurement) -> None:
    """
    What was saved is what is loaded, and the file has the ratios for others to read.
    """
    results.measurements.append(writes)
    results.save()

    assert load(results.path) == results
    document = json.loads(results.path.read_text())
    assert document["ratios"]["batch-100B-wire/jvm"] == {"median": 4.0, "min": 4.0, "max": 4.4}


def test_older_results_still_load(results: Results) -> None:
    """
    A file from before there were several bases has one.
    """
    results.save()
    document = json.loads(results.path.read_text())
    for one in document["measurements"]:
        del one["also"]
    results.path.write_text(json.dumps(document))

    assert load(results.path) == results


def test_chart_is_drawn_twice(results: Results, writes: Measurement) -> None:
    """
    A PNG and an SVG lie beside the JSON file.
    """
    results.measurements.append(writes)

    png, svg = draw(results)

    assert png.read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in svg.read_bytes()


def test_what_has_no_chart_draws_none(results: Results) -> None:
    """
    Where nothing was held against the JVM connector, no empty picture is left behind.
    """
    results.measurements[:] = [replace(one, kind="audit") for one in results.measurements]

    assert draw(results) == []
    assert not results.path.with_suffix(".png").exists()


def test_case_says_what_is_read() -> None:
    """
    No compression and two partitions go without saying.
    """
    assert Case("batch", TopicSpec(100, "none", 2, 1)).name == "batch-100B"
    assert Case("stream", TopicSpec(1024, "lz4", 8, 1)).name == "stream-1KB-lz4-8p"


def test_every_round_has_everyone_in_turn() -> None:
    """
    Orders differ between rounds, and are the same for the same seed.
    """
    rounds = shuffled_rounds(["a", "b", "c"], 20, "seed")

    assert all(sorted(order) == ["a", "b", "c"] for order in rounds)
    assert len({tuple(order) for order in rounds}) > 1
    assert rounds == shuffled_rounds(["a", "b", "c"], 20, "seed")


def test_quick_run_measures_two_rows() -> None:
    """
    It reads uncompressed values of 100 B and 1 KB from two partitions, in batch.
    """
    plan = parse(["--quick"], "unnamed")

    assert [Case(mode, topic).name for topic in plan.topics for mode in plan.modes] == [
        "batch-100B",
        "batch-1KB",
    ]
    assert plan.parts == ("throughput",)


def test_full_run_measures_every_combination() -> None:
    """
    Three sizes and three codecs, in two partitions: more takes longer than an hour.
    """
    plan = parse([], "unnamed")

    assert len(plan.topics) == 9
    assert {topic.partitions for topic in plan.topics} == {2}
    assert plan.modes == ("batch", "stream")
    assert (plan.rounds, plan.name) == (5, "unnamed")


def test_writes_are_small_records_to_two_partitions() -> None:
    """
    Unless asked for otherwise, every writer writes values of 100 B and 1 KB.
    """
    plan = parse(["--parts", "writes"], "unnamed")

    assert [Case("write", spec).name for spec in plan.written] == ["write-100B", "write-1KB"]
    assert plan.writers == tuple(WRITERS.values())


def test_writers_and_their_topics_can_be_chosen() -> None:
    """
    Sizes, partitions and records are those of the reads' arguments.
    """
    words = "--writers jvm,jvm-tuned --sizes 500 --partitions 8 --records 7"

    plan = parse(words.split(), "unnamed")

    assert plan.writers == (JVM, JVM_TUNED)
    assert plan.written == (TopicSpec(500, "none", 8, 7),)


def test_spark_can_be_set_otherwise() -> None:
    """
    Settings keep what follows the first sign of equality.
    """
    plan = parse(["--conf", "spark.a=b=c", "--conf", "spark.d="], "unnamed")

    assert plan.conf == {"spark.a": "b=c", "spark.d": ""}
    assert parse([], "unnamed").conf == {}


def test_only_what_reaches_kafka_is_looked_for_there() -> None:
    """
    The ceiling and the source of the rows leave nothing in a topic.
    """
    outside = {name for name, one in WRITERS.items() if not in_kafka(one)}

    assert outside == {"ceiling", "source"}


def test_unknown_words_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """
    A word that means nothing is named, with those that do or what it must look like.
    """
    with pytest.raises(SystemExit, match="2"):
        parse(["--codecs", "none,lzo"], "unnamed")

    assert "'lzo' is not one of: none, lz4" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        parse(["--conf", "spark.a"], "unnamed")

    assert "'spark.a' is not a setting; it must be name=value" in capsys.readouterr().err


@pytest.mark.parametrize("size", [100, 1024])
def test_values_have_their_size_and_are_the_same_again(size: int) -> None:
    """
    Every run writes the same values, all different, all of one size.
    """
    made = samples(size)

    assert {len(one) for one in made} == {size}
    assert len(set(made)) == len(made)
    assert made == samples(size)


def test_pairs_of_key_and_value_differ() -> None:
    """
    Records to write begin anew with their keys at another place than with their values.
    """
    made, values = keys(), samples(100)

    assert {len(one) for one in made} == {8}
    assert len({(at % len(made), at % len(values)) for at in range(100_000)}) == 100_000
