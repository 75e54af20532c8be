"""
Each block of each page is run by a test, or is listed here with the reason why not.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
}
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)

PASTED = "tests/broker/test_pasted_pages.py"
#: The test that runs the blocks of a page, by the page and the language of the blocks.
TESTS = {
    ("README.md", "python"): PASTED,
    ("README.md", "sh"): PASTED,
    ("docs/api.md", "python"): PASTED,
    ("docs/audit.md", "python"): PASTED,
    ("docs/commands.md", "sh"): PASTED,
    ("docs/commands.md", "toml"): "tests/unit/cli/test_client_config.py",
    ("docs/compacted-topics.md", "python"): PASTED,
    ("docs/connect.md", "python"): "tests/broker/spark_connect_job.py",
    ("docs/debezium.md", "python"): "tests/broker/test_debezium_topics.py",
    ("docs/failing.md", "python"): PASTED,
    ("docs/index.md", "python"): PASTED,
    ("docs/index.md", "sql"): PASTED,
    ("docs/migrating.md", "python"): PASTED,
    ("docs/migrating.md", "sh"): PASTED,
    ("docs/monitoring.md", "python"): "tests/unit/metrics/test_page_examples.py",
    ("docs/performance.md", "python"): PASTED,
    ("docs/positions.md", "python"): PASTED,
    ("docs/progress.md", "python"): PASTED,
    ("docs/recipes.md", "python"): PASTED,
    ("docs/recipes.md", "sh"): PASTED,
    ("docs/recipes.md", "sql"): PASTED,
    ("docs/schema-registry.md", "python"): "tests/broker/test_schema_registry.py",
    ("docs/sql.md", "python"): "tests/broker/test_sql.py",
    ("docs/sql.md", "sql"): "tests/broker/test_sql.py",
    ("docs/testing.md", "python"): PASTED,
    ("docs/tutorial.md", "python"): PASTED,
    ("docs/tutorial.md", "sh"): PASTED,
    ("docs/typed-topics.md", "python"): "tests/broker/test_typed_topics.py",
    ("docs/writing.md", "python"): PASTED,
}

#: Single blocks that other tests run or compare, by the page and the beginning of the block.
TESTS_OF_BLOCKS = {
    ("docs/architecture.md", "cli/  testing/  verify/"): "tests/unit/test_architecture.py",
    ("docs/architecture.md", "selection "): "tests/unit/test_architecture.py",
    ("docs/architecture.md", "producer/ "): "tests/unit/test_architecture.py",
    ("docs/deploying.md", "flights = ("): "tests/unit/engines/test_client_rack.py",
    ("docs/deploying.md", "from pathlib import Path"): "tests/unit/engines/test_client_rack.py",
    ("docs/deploying.md", "[build-system]"): "tests/unit/engines/test_client_rack.py",
    ("docs/deploying.md", 'spark.conf.set("spark.sql.redaction'): (
        "tests/unit/doctor/test_redaction.py"
    ),
    ("docs/deploying.md", "pip install --target packages"): "tests/broker/test_deploying.py",
    ("docs/deploying.md", "CC=false pip wheel"): "tests/broker/test_deploying.py",
    ("docs/deploying.md", "from pyspark.sql import Spark"): "tests/broker/test_deploying.py",
    ("docs/verify.md", "written "): "tests/unit/verify/test_report.py",
}

INSTALL = "it installs the published package, which no test changes or has"
DEVELOPER = "it is a target of the Makefile, which CI or a person runs for its own sake"
NO_PLATFORM = "no test has such a platform, as the page says"
SPARK_COMMAND = "it is Spark's own command line, with a job that the reader has"
LOG = "it is an excerpt of a log; tests compare such lines with patterns"
#: The blocks that no test runs, by the page and the beginning of the block, with the reason.
NOT_RUN = {
    ("README.md", "pip install pyspark-pykafka"): INSTALL,
    ("README.md", "make demo"): "tests/examples/test_examples.py runs the demo with fewer flights",
    ("docs/api.md", "pyspark_pykafka.errors.OptionsError"): LOG,
    ("docs/deploying.md", "pip install pyspark-pykafka"): INSTALL,
    ("docs/deploying.md", "spark-submit \\\n  --master yarn"): NO_PLATFORM,
    ("docs/deploying.md", "spark-submit \\\n  --master k8s"): NO_PLATFORM,
    ("docs/failing.md", "PYKAFKA_LOG=info spark-submit"): (
        "tests/broker/test_submitted_log.py submits a job with this variable"
    ),
    ("docs/failing.md", "26/11/25 10:15:02 INFO"): LOG,
    ("docs/monitoring.md", "query flights: micro-batch"): LOG,
    ("docs/performance.md", "$ make bench"): DEVELOPER,
    ("docs/performance.md", "spark-submit --conf"): SPARK_COMMAND,
    ("docs/simulation.md", "make simulate"): DEVELOPER,
    ("docs/soak.md", "make soak"): DEVELOPER,
    ("docs/testing.md", "$ pykafka dev"): "tests/broker/test_dev_command.py runs this command",
    ("docs/tutorial.md", "0@0  2026"): "it is the output of the block before it",
    ("docs/typed-topics.md", "protoc "): "the test on the page makes the same file itself",
}


def is_drawing(language: str) -> bool:
    return language == "mermaid"


def has_commands_only(text: str) -> bool:
    """
    Return whether each line calls pykafka, so that test_commands_have_the_right_form checks it.
    """
    lines = text.replace("\\\n", " ").splitlines()
    return all(not line.strip() or line.strip().startswith(("pykafka ", "#")) for line in lines)


def matching(page: str, text: str) -> list[tuple[str, str]]:
    """
    Return the keys that match a block in the tables of single blocks.
    """
    keys = [*TESTS_OF_BLOCKS, *NOT_RUN]
    return [key for key in keys if key[0] == page and text.startswith(key[1])]


def uncovered(page: str, text: str) -> list[str]:
    """
    Return the first line of each block of a page that is neither run nor listed.
    """
    return [
        block.partition("\n")[0]
        for language, code in FENCE.findall(text)
        for block in [textwrap.dedent(code)]
        if not is_drawing(language)
        and (page, language) not in TESTS
        and not (language in {"", "sh"} and has_commands_only(block))
        and not matching(page, block)
    ]


@pytest.mark.parametrize("page", PAGES)
def test_each_block_is_run_or_listed(page: str) -> None:
    """
    A test runs each block, or the block is in the table of those that are not run, with its reason;
    blocks with nothing but commands have the right form.
    """
    assert uncovered(page, PAGES[page]) == []


def test_the_tables_have_no_entry_too_many() -> None:
    """
    Each entry stands for a block, and no block is both run and listed as not run.
    """
    blocks = [
        (page, language, textwrap.dedent(code))
        for page, text in PAGES.items()
        for language, code in FENCE.findall(text)
    ]
    used = {key for page, _, text in blocks for key in matching(page, text)}

    assert set(TESTS) <= {(page, language) for page, language, _ in blocks}
    assert {*TESTS_OF_BLOCKS, *NOT_RUN} == used
    assert not [
        (page, text)
        for page, language, text in blocks
        if len(matching(page, text)) + ((page, language) in TESTS) > 1
    ]


@pytest.mark.parametrize(
    ("page", "test"),
    sorted({(key[0], test) for key, test in (TESTS | TESTS_OF_BLOCKS).items()}),
)
def test_the_named_test_reads_the_page(page: str, test: str) -> None:
    """
    The code of the test that is said to run a page names that page.
    """
    code = (ROOT / test).read_text()

    assert page in code or f'"{Path(page).name}"' in code


def test_a_block_that_nobody_runs_is_found() -> None:
    """
    A block of a new page is found, in whatever language; commands and drawings are not.
    """
    page = "```\nls\n```\n```python\nx = 1\n```\n```sh\npykafka lag\n```\n```mermaid\na\n```\n"

    assert uncovered("docs/new.md", page) == ["ls", "x = 1"]
