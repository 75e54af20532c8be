"""
The generated page docs/options.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_pykafka.options import OPTIONS
from pyspark_pykafka.options.__main__ import main
from pyspark_pykafka.options.docs_page import page
from pyspark_pykafka.options.option import Scope
from pyspark_pykafka.options.table import MIN_PARTITIONS
from pyspark_pykafka.source.driver_read import DriverReadPolicy

PAGE = Path(__file__).parents[3] / "docs" / "options.md"


def test_page_is_up_to_date() -> None:
    """
    docs/options.md equals the generated page; write it with `python -m pyspark_pykafka.options`.
    """
    assert PAGE.read_text(encoding="utf-8") == page()


def test_page_lists_every_option() -> None:
    """
    Every option has a row.
    """
    text = page()

    assert [option.name for option in OPTIONS if f"| `{option.name}` |" not in text] == []


def test_main_prints_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    """
    `python -m pyspark_pykafka.options` prints the page and nothing else.
    """
    main()

    assert capsys.readouterr().out == page()


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_defaults_can_be_parsed(option: object) -> None:
    """
    Every option's default is accepted by its own parser.
    """
    for default in (option.default, option.stream_default):  # type: ignore[attr-defined]
        assert default is None or option.parser(default) is not None  # type: ignore[attr-defined]


def test_each_table_has_the_options_of_its_queries() -> None:
    """
    The table of reads and that of writes each have the options that have an effect there, and no
    others.
    """
    reading, writing = page().split("## kafka.*")[0].split("## Writing")

    for scope, table in ((Scope.READ, reading), (Scope.WRITE, writing)):
        listed = {line.split("`")[1] for line in table.splitlines() if line.startswith("| `")}
        assert listed == {option.name for option in OPTIONS if option.scope & scope}


def test_tasks_of_a_tiny_micro_batch() -> None:
    """
    The number of tasks by default is that of the policy for reads on the driver.
    """
    policy = DriverReadPolicy()

    limits = f"{policy.max_offsets:,} offsets in up to {policy.max_ranges} ranges"
    assert limits in MIN_PARTITIONS.description
