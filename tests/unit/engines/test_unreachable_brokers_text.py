"""
The error for brokers that cannot be reached names the reasons, the option and the remedy, each
once.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from tests.support.listening import listen, unused_address
from tests.support.metadata_backends import metadata_backend_of

from pyspark_pykafka.engines import first_contact
from pyspark_pykafka.engines.selection import check_brokers, check_topic
from pyspark_pykafka.engines.wire.network import bootstrap_check
from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.settings import KafkaSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Request = Callable[[KafkaSettings, str], object]

ENGINES = ["wire", "librdkafka"]
ADVICE = (
    "; kafka.bootstrap.servers must name brokers that are up and that this machine can reach; "
    "start them, or correct the addresses, and check with `pykafka doctor`"
)


def read_metadata(kafka: KafkaSettings, engine: str) -> object:
    """
    Read the partitions of a topic as the driver of a read does.
    """
    return metadata_backend_of(kafka, "read_committed", engine).describe_topics(["t"])


def look_up_topic(kafka: KafkaSettings, engine: str) -> None:
    """
    Look up a topic as the driver of a write does.
    """
    check_topic(kafka, "t", engine)


@pytest.fixture
def unreachable() -> Iterator[tuple[str, str]]:
    """
    Return an address where nothing listens, and one that never responds.
    """
    with ExitStack() as stack:
        silent = stack.enter_context(listen())
        closed_host, closed_port = unused_address()
        yield f"{closed_host}:{closed_port}", f"127.0.0.1:{silent.getsockname()[1]}"


@pytest.mark.parametrize("request_of", [read_metadata, look_up_topic, check_brokers])
@pytest.mark.parametrize("engine", ENGINES)
def test_the_text_says_each_thing_once(
    unreachable: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    request_of: Request,
) -> None:
    """
    The error of both engines has one reason for each address, the option and the advice, each of
    them once, and all in one line.
    """
    monkeypatch.setattr(first_contact, "FIRST_CONTACT_MS", 3_000)
    monkeypatch.setattr(first_contact, "_reached", set())
    monkeypatch.setattr(bootstrap_check, "PROBE_SECONDS", 1.0)
    closed, silent = unreachable
    kafka = KafkaSettings.of({"bootstrap.servers": f"{closed},{silent}"})

    with pytest.raises(PykafkaError) as raised:
        request_of(kafka, engine)

    text = str(raised.value)
    assert text.endswith(ADVICE)
    reasons = text.removesuffix(ADVICE)
    assert f"{closed}: connecting failed: Connection refused" in reasons
    assert reasons.count("no broker answers") == 1
    assert {address: reasons.count(address) for address in unreachable} == {closed: 1, silent: 1}
    for repeated in ("reachable", "no response within", "answered in time", "waiting", "\n"):
        assert repeated not in reasons
