"""
The choice of the engine for a range, and its log lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support import fetching, producing

from pyspark_pykafka.engines import selection
from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pyspark_pykafka.engines.contract import FetchSettings

OFFSET_RANGE = OffsetRange(TopicPartition("t", 0), 0, 10)


def settings(engine: str, **kafka: str) -> FetchSettings:
    """
    Return the settings of a read with an engine and Kafka settings, underscores for dots.
    """
    return fetching.settings("h:9092", engine, kafka=producing.settings("h:9092", **kafka))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, OffsetRange]]:
    """
    Return the pairs of (engine, range) that are chosen for reads; nothing is read.
    """
    requested: list[tuple[str, OffsetRange]] = []

    def reader(name: str) -> Any:
        def read(offset_range: OffsetRange, _settings: FetchSettings) -> Iterator[pa.RecordBatch]:
            requested.append((name, offset_range))
            return iter(())

        return read

    monkeypatch.setattr("pyspark_pykafka.engines.librdkafka.consumer.fetch", reader("librdkafka"))
    monkeypatch.setattr("pyspark_pykafka.engines.wire.consumer.range_reader.fetch", reader("wire"))
    selection._log_fallback_once.cache_clear()
    selection.wire_read_unavailable_reason.cache_clear()
    return requested


@pytest.mark.parametrize(
    ("engine", "expected"), [("auto", "wire"), ("wire", "wire"), ("librdkafka", "librdkafka")]
)
def test_auto_chooses_wire(
    reads: list[tuple[str, OffsetRange]], engine: str, expected: str
) -> None:
    """
    Auto uses wire where its compiled module is installed and the settings are supported; an engine
    that is set explicitly is used.
    """
    assert list(selection.fetch(OFFSET_RANGE, settings(engine))) == []
    assert reads == [(expected, OFFSET_RANGE)]


def test_unsupported_settings_fall_back_to_librdkafka(
    reads: list[tuple[str, OffsetRange]], caplog: pytest.LogCaptureFixture
) -> None:
    """
    Auto falls back and logs the reason once; with engine=wire the reason is an error.
    """
    kerberos = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}
    for _ in range(3):
        list(selection.fetch(OFFSET_RANGE, settings("auto", **kerberos)))

    assert reads == [("librdkafka", OFFSET_RANGE)] * 3
    assert caplog.text.count("reading with librdkafka, which is slower:") == 1
    assert "GSSAPI" in caplog.text
    with pytest.raises(OptionsError, match="engine is 'wire', which cannot be used: .*GSSAPI"):
        list(selection.fetch(OFFSET_RANGE, settings("wire", **kerberos)))


def test_missing_compiled_module_falls_back_to_librdkafka(
    reads: list[tuple[str, OffsetRange]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    Without a C compiler at install time librdkafka reads, and the log says what to install.
    """
    monkeypatch.setattr(selection, "_DECODER", "pyspark_pykafka.engines.wire.records._not_there")

    list(selection.fetch(OFFSET_RANGE, settings("auto")))

    assert reads == [("librdkafka", OFFSET_RANGE)]
    assert "its compiled module is not installed" in caplog.text


def test_old_message_formats_are_left_to_librdkafka(
    reads: list[tuple[str, OffsetRange]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    Librdkafka reads the rest of a range from the first record in an old format on.
    """
    from pyspark_pykafka.engines.wire.consumer import range_reader as wire

    rest = OffsetRange(OFFSET_RANGE.tp, 4, 10)

    def old(_range: OffsetRange, _settings: FetchSettings) -> Iterator[pa.RecordBatch]:
        yield from ()
        raise wire.OldFormatError(rest, 1)

    monkeypatch.setattr(wire, "fetch", old)

    list(selection.fetch(OFFSET_RANGE, settings("auto")))

    assert reads == [("librdkafka", rest)]
    assert "old message format 1" in caplog.text
