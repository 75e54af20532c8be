"""
The environment variable that shows the connector's log, in processes that configure no logging.
"""

from __future__ import annotations

import re

import pytest
from tests.support.fresh_process import errors_of

#: What a planning process does: it imports the package first, and logs a plan.
PLAN = """
import pyspark_pykafka
from pyspark_pykafka.source.plan_log import log_plan
from pyspark_pykafka.offsets import OffsetRange, TopicPartition
log_plan([OffsetRange(TopicPartition("t", 0), 3, 5)], "offset >= 3")
"""
WIRE = """
import pyspark_pykafka
from pyspark_pykafka.engines.wire.network.wire_log import WireLog
from pyspark_pykafka.settings.wire_config import Address
WireLog(Address("b", 9092), ["broker"]).connected("PLAINTEXT", 0.001)
"""
PLANNED = "pyspark_pykafka: reading t: at most 2 records in 1 ranges: t-0[3, 5); filters: offset >="
TIME = re.compile(r"^\d\d/\d\d/\d\d \d\d:\d\d:\d\d ")


@pytest.mark.parametrize(
    ("program", "level", "logged"),
    [
        (PLAN, "", None),
        (PLAN, "warning", None),
        (PLAN, "info", f"INFO {PLANNED}"),
        (PLAN, " INFO ", f"INFO {PLANNED}"),
        (PLAN, "debug", f"INFO {PLANNED}"),
        (WIRE, "info", None),
        (WIRE, "debug", "DEBUG pyspark_pykafka.wire: b:9092: connected with PLAINTEXT in 1.0 ms"),
    ],
)
def test_the_variable_shows_the_log_from_its_level_on(
    program: str, level: str, logged: str | None
) -> None:
    """
    The log is on stderr from the level of PYKAFKA_LOG on, with times as in Spark's own log; plans
    and the protocol are not shown without it.
    """
    lines = errors_of(program, {"PYKAFKA_LOG": level})

    assert len(lines) == (0 if logged is None else 1)
    if logged is not None:
        assert TIME.match(lines[0])
        assert TIME.sub("", lines[0]).startswith(logged)


def test_a_program_that_configures_logging_gets_each_line_once() -> None:
    """
    The handlers of a program replace the variable's output, and the level stays.
    """
    program = f"import logging\n{PLAN.replace('log_plan([', 'logging.basicConfig(); log_plan([')}"

    (line,) = errors_of(program, {"PYKAFKA_LOG": "info"})

    assert line.startswith("INFO:pyspark_pykafka:reading t")


def test_an_unknown_level_is_named() -> None:
    """
    A misspelt level is a warning; an error would keep Spark from finding the format.
    """
    (line,) = errors_of(PLAN, {"PYKAFKA_LOG": "infos"})

    assert line == "PYKAFKA_LOG is 'infos'; it must be debug, info, warning or error"
