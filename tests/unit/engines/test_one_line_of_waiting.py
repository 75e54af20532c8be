"""
A wait for brokers that do not answer is one line on the terminal, in each read, write and command.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StringType, StructField, StructType
from tests.support.listening import listen, unused_address
from tests.support.proxy import Proxy

from pyspark_pykafka import DefaultSource, name_resolution, retry
from pyspark_pykafka.cli import main
from pyspark_pykafka.cli.exit_codes import ExitCode
from pyspark_pykafka.engines import first_contact
from pyspark_pykafka.engines.librdkafka import admin, client, producer
from pyspark_pykafka.engines.wire.network import (
    api_timeout,
    bootstrap_check,
    connect,
    racing,
    transport,
)
from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.spark.compat import source_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROWS = StructType([StructField("value", StringType()), StructField("topic", StringType())])
LONG_SECONDS, CONTACT_MS = 1.0, 3_000


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Let a wait count as long after one second, and a first contact take at most three seconds.
    """
    for module in (
        *(retry, transport, connect, name_resolution),
        *(racing, api_timeout, client, producer),
    ):
        monkeypatch.setattr(module, "LONG_WAIT_SECONDS", LONG_SECONDS)
    monkeypatch.setattr(admin, "_LONG_WAIT_SECONDS", LONG_SECONDS)
    monkeypatch.setattr(admin, "_FIRST_REQUEST_SECONDS", LONG_SECONDS)
    # Like the real value, this one is shorter than a long wait.
    monkeypatch.setattr(bootstrap_check, "PROBE_SECONDS", LONG_SECONDS / 2)
    monkeypatch.setattr(first_contact, "FIRST_CONTACT_MS", CONTACT_MS)
    monkeypatch.setattr(first_contact, "_reached", set())


@pytest.fixture(params=["refuses", "is silent", "drops SYNs"])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """
    Return an address that does not answer, in one of three ways.
    """
    with ExitStack() as stack:
        if request.param == "refuses":
            yield "{}:{}".format(*unused_address())
        elif request.param == "is silent":
            yield f"127.0.0.1:{stack.enter_context(listen()).getsockname()[1]}"
        else:
            proxy = stack.enter_context(Proxy(unused_address()))
            proxy.drop_syns()
            yield proxy.address


def batch_read(bootstrap: str, engine: str) -> None:
    """
    Plan a batch read as Spark does.
    """
    source = DefaultSource(
        {"kafka.bootstrap.servers": bootstrap, "engine": engine, "subscribe": "t"}
    )
    source.reader(source_schema(include_headers=False)).partitions()


def batch_write(bootstrap: str, engine: str) -> None:
    """
    Make the writer of a batch on the driver as Spark does.
    """
    source = DefaultSource({"kafka.bootstrap.servers": bootstrap, "engine": engine, "topic": "t"})
    source.writer(ROWS, overwrite=False)


def batch_write_by_column(bootstrap: str, engine: str) -> None:
    """
    Make the writer of a batch whose rows name their topics.
    """
    source = DefaultSource({"kafka.bootstrap.servers": bootstrap, "engine": engine})
    source.writer(ROWS, overwrite=False)


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """
    Return what Python shows on a terminal without configured logging: warnings and errors.
    """
    return [text for _, level, text in caplog.record_tuples if level >= logging.WARNING]


@pytest.mark.parametrize("engine", ["wire", "librdkafka"])
@pytest.mark.parametrize("query", [batch_read, batch_write, batch_write_by_column])
def test_a_query_waits_with_one_line(
    bootstrap: str,
    caplog: pytest.LogCaptureFixture,
    engine: str,
    query: Callable[[str, str], None],
) -> None:
    """
    A batch read and a batch write that wait log one line, with the time that is left.
    """
    with pytest.raises(PykafkaError):
        query(bootstrap, engine)

    (line,) = lines_of(caplog)
    assert line.endswith(" s at most")


@pytest.mark.parametrize(
    "command",
    [["lag", "--group", "g"], ["produce", "--topic", "t", "v"], ["peek", "--topic", "t"]],
    ids=lambda command: command[0],
)
def test_a_command_waits_with_one_line(
    bootstrap: str, caplog: pytest.LogCaptureFixture, command: list[str]
) -> None:
    """
    A command that waits logs one line, with the time that is left.
    """
    assert main([*command, "--bootstrap-server", bootstrap]) == ExitCode.UNAVAILABLE

    (line,) = lines_of(caplog)
    assert line.endswith(" s at most")
