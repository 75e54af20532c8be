"""
Which engine does the work: the fast one wherever it can, the portable one elsewhere.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.settings.librdkafka_config import transaction_timeout_ms
from pyspark_pykafka.settings.wire_support import (
    wire_unsupported_reason,
    wire_write_unsupported_reason,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from pyspark_pykafka.engines.contract import FallbackId, FetchSettings
    from pyspark_pykafka.engines.metadata_contract import MetadataBackend
    from pyspark_pykafka.engines.wire.producer.producer import OpenTransaction
    from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
    from pyspark_pykafka.offsets import OffsetRange, Offsets, TopicPartition
    from pyspark_pykafka.settings import KafkaSettings

    #: A ledger's topic, and the record that tells of a task: how many rows, and a hash of them.
    Ledger = tuple[str, Callable[[int, str], tuple[bytes, bytes]]]

logger = logging.getLogger("pyspark_pykafka")

_WIRE = "pyspark_pykafka.engines.wire"
_DECODER, _ENCODER = f"{_WIRE}.records._decoder", f"{_WIRE}.records._encoder"


def fetch(wanted: OffsetRange, settings: FetchSettings) -> Iterator[pa.RecordBatch]:
    """
    Yield the records of a range in offset order, through the engine that the settings ask for.

    Raises :class:`OptionsError` if ``wire`` is asked for by name and cannot be used here.
    """
    if settings.engine == "librdkafka":
        return _librdkafka(wanted, settings)
    refusal = wire_read_unavailable(settings.kafka)
    if refusal is None:
        return _wire(wanted, settings)
    if settings.engine == "wire":
        raise _cannot(refusal)
    _log_fallback_once("reading", refusal)
    return _librdkafka(wanted, settings)


def produce(
    batches: Iterable[pa.RecordBatch], kafka: KafkaSettings, topic: str | None, engine: str
) -> int:
    """
    Write every row through the engine that is asked for; return how many were acknowledged.

    ``topic`` wins over the rows' own. Raises :class:`OptionsError` if ``wire`` is asked for by name
    and cannot be used here.
    """
    refusal = None if engine == "librdkafka" else wire_write_unavailable(kafka)
    if engine != "librdkafka" and refusal is None:
        wire = import_module(f"{_WIRE}.producer.producer")
        written: int = wire.produce(batches, kafka, topic)
        return written
    if refusal is not None:
        if engine == "wire":
            raise _cannot(refusal)
        _log_fallback_once("writing", refusal)
    from pyspark_pykafka.engines.librdkafka.producer import produce as produce_by_librdkafka

    return produce_by_librdkafka(batches, kafka, topic)


def write_prepared(
    batches: Iterable[pa.RecordBatch],
    kafka: KafkaSettings,
    topic: str | None,
    name: str,
    *,
    fallback: FallbackId | None = None,
    ledger: Ledger | None = None,
    fence_id: str | None = None,
) -> OpenTransaction:
    """
    Write every row into a transaction of this name, which stays open, and its entry for the ledger.

    If a transaction of the name is open, it is aborted, or ``fallback`` is used if it is given.
    It stays open for ``kafka.transaction.timeout.ms`` at most, and not at all once the brokers know
    ``fence_id``. Raises :class:`OptionsError` where the wire engine cannot be used: librdkafka
    cannot hand a transaction over.
    """
    wire = _wire_producing(kafka)
    ledger_record = None if ledger is None else wire.LedgerRecord(*ledger)
    wanted = wire.Transaction(
        name, transaction_timeout_ms(kafka), fallback, ledger_record, fence_id
    )
    written: OpenTransaction = wire.write_prepared(batches, kafka, topic, wanted)
    return written


def transaction_client(kafka: KafkaSettings) -> AbstractContextManager[Transactions]:
    """
    Lend a client that finds and ends transactions.

    Raises :class:`OptionsError` as :func:`write_prepared` does.
    """
    lent: AbstractContextManager[Transactions] = _wire_producing(kafka).transaction_client(kafka)
    return lent


def check_transactions(kafka: KafkaSettings) -> None:
    """
    Raise :class:`OptionsError` where nothing can be written in transactions.
    """
    refusal = wire_write_unavailable(kafka)
    if refusal is not None:
        msg = f"transactions need the wire engine, which cannot be used: {refusal}"
        raise OptionsError((msg,))


def _wire_producing(kafka: KafkaSettings) -> Any:
    check_transactions(kafka)
    return import_module(f"{_WIRE}.producer.producer")


def bytes_per_offset(positions: Offsets, settings: FetchSettings) -> dict[TopicPartition, float]:
    """
    Return about how many bytes an offset takes in the log, after each position that has records.

    Raises :class:`OptionsError` where the wire engine cannot be used, since only it sees the log.
    """
    refusal = wire_read_unavailable(settings.kafka)
    if settings.engine == "librdkafka":
        refusal = "the option engine is 'librdkafka'"
    if refusal is not None:
        msg = (
            f"maxBytesPerTrigger needs the wire engine to see how large records are: {refusal}; "
            "use maxOffsetsPerTrigger instead"
        )
        raise OptionsError((msg,))
    found: dict[TopicPartition, float] = import_module(
        f"{_WIRE}.consumer.record_size"
    ).bytes_per_offset(positions, settings)
    return found


def metadata_backend(kafka: KafkaSettings, isolation_level: str, engine: str) -> MetadataBackend:
    """
    Return who asks the brokers for partitions and offsets, by the same rule as :func:`fetch`.

    Raises :class:`OptionsError` if ``wire`` is asked for by name and cannot be used here.
    """
    refusal = None if engine == "librdkafka" else wire_read_unavailable(kafka)
    if engine == "wire" and refusal is not None:
        raise _cannot(refusal)
    if engine == "librdkafka" or refusal is not None:
        from pyspark_pykafka.engines.librdkafka.metadata import AdminMetadata

        return AdminMetadata(kafka, isolation_level)
    from pyspark_pykafka.engines.wire.consumer.metadata import WireMetadata

    return WireMetadata(kafka, isolation_level)


# Asked for every task, and always the same.
@lru_cache(maxsize=16)
def wire_read_unavailable(kafka: KafkaSettings) -> str | None:
    """
    Return why the wire engine cannot be used in this process, or None if it can.
    """
    return _not_compiled(_DECODER) or wire_unsupported_reason(kafka)


@lru_cache(maxsize=16)
def wire_write_unavailable(kafka: KafkaSettings) -> str | None:
    """
    Return why the wire engine cannot write in this process, or None if it can.
    """
    return _not_compiled(_ENCODER) or wire_write_unsupported_reason(kafka)


def _not_compiled(module: str) -> str | None:
    if find_spec(module) is not None:
        return None
    return (
        "its compiled module is not installed; install a wheel of pyspark-pykafka for this "
        "platform, or a C compiler before you install from source"
    )


def _cannot(refusal: str) -> OptionsError:
    msg = f"engine is 'wire', which cannot be used: {refusal}; it must be: auto or librdkafka"
    return OptionsError((msg,))


def _librdkafka(wanted: OffsetRange, settings: FetchSettings) -> Iterator[pa.RecordBatch]:
    from pyspark_pykafka.engines.librdkafka.consumer import fetch as fetch_by_librdkafka

    return fetch_by_librdkafka(wanted, settings)


def _wire(wanted: OffsetRange, settings: FetchSettings) -> Iterator[pa.RecordBatch]:
    # By name, since it cannot be imported where it was not compiled.
    wire = import_module(f"{_WIRE}.consumer.range_reader")
    try:
        yield from wire.fetch(wanted, settings)
    except wire.OldFormatError as old:
        _log_fallback_once(
            "reading", f"{wanted.tp} holds records in the old message format {old.magic}"
        )
        rest = old.rest
    else:
        return
    yield from _librdkafka(rest, settings)


@lru_cache(maxsize=64)
def _log_fallback_once(doing: str, reason: str) -> None:
    logger.warning("%s with librdkafka, which is slower: %s", doing, reason)
