"""
Which engine reads a range: the fast one wherever it can, the portable one elsewhere.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pyspark_pykafka.client import direct_refusal
from pyspark_pykafka.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pyspark_pykafka.engine import FetchSettings
    from pyspark_pykafka.offsets import OffsetRange, Offsets, TopicPartition
    from pyspark_pykafka.settings import KafkaSettings

logger = logging.getLogger("pyspark_pykafka")

_COMPILED = "pyspark_pykafka.wire._records"


def fetch(wanted: OffsetRange, settings: FetchSettings) -> Iterator[pa.RecordBatch]:
    """
    Yield the records of a range in offset order, through the engine that the settings ask for.

    Raises :class:`OptionsError` if ``wire`` is asked for by name and cannot be used here.
    """
    if settings.engine == "librdkafka":
        return _librdkafka(wanted, settings)
    refusal = wire_refusal(settings.kafka)
    if refusal is None:
        return _wire(wanted, settings)
    if settings.engine == "wire":
        msg = f"engine is 'wire', which cannot be used: {refusal}; it must be: auto or librdkafka"
        raise OptionsError((msg,))
    _say_once(refusal)
    return _librdkafka(wanted, settings)


def bytes_per_offset(positions: Offsets, settings: FetchSettings) -> dict[TopicPartition, float]:
    """
    Return about how many bytes an offset takes in the log, after each position that has records.

    Raises :class:`OptionsError` where the wire engine cannot be used, since only it sees the log.
    """
    refusal = wire_refusal(settings.kafka)
    if settings.engine == "librdkafka":
        refusal = "the option engine is 'librdkafka'"
    if refusal is not None:
        msg = (
            f"maxBytesPerTrigger needs the wire engine to see how large records are: {refusal}; "
            "use maxOffsetsPerTrigger instead"
        )
        raise OptionsError((msg,))
    found: dict[TopicPartition, float] = import_module(
        "pyspark_pykafka.wire.sample"
    ).bytes_per_offset(positions, settings)
    return found


# Asked for every task, and always the same.
@lru_cache(maxsize=16)
def wire_refusal(kafka: KafkaSettings) -> str | None:
    """
    Return why the wire engine cannot be used in this process, or None if it can.
    """
    if find_spec(_COMPILED) is None:
        return (
            "its compiled module is not installed; install a wheel of pyspark-pykafka for this "
            "platform, or a C compiler before you install from source"
        )
    return direct_refusal(kafka)


def _librdkafka(wanted: OffsetRange, settings: FetchSettings) -> Iterator[pa.RecordBatch]:
    from pyspark_pykafka.rdkafka import fetch as fetch_by_librdkafka

    return fetch_by_librdkafka(wanted, settings)


def _wire(wanted: OffsetRange, settings: FetchSettings) -> Iterator[pa.RecordBatch]:
    # By name, since it cannot be imported where it was not compiled.
    wire = import_module("pyspark_pykafka.wire.fetch")
    try:
        yield from wire.fetch(wanted, settings)
    except wire.OldFormatError as old:
        _say_once(f"{wanted.tp} holds records in the old message format {old.magic}")
        rest = old.rest
    else:
        return
    yield from _librdkafka(rest, settings)


@lru_cache(maxsize=64)
def _say_once(reason: str) -> None:
    logger.warning("reading with librdkafka, which is slower: %s", reason)
