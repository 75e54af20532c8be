"""
Chooses the engine: wire where it is installed and supports the settings, librdkafka elsewhere.
"""

from __future__ import annotations

import logging
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

from pyspark_pykafka.engines.client_rack import with_client_rack
from pyspark_pykafka.engines.contract import first_records
from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.settings.librdkafka_config import transaction_timeout_ms
from pyspark_pykafka.settings.wire_support import (
    wire_unsupported_reason,
    wire_write_unsupported_reason,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from pyspark_pykafka.engines.byte_density import DensitySamples
    from pyspark_pykafka.engines.contract import FetchSettings
    from pyspark_pykafka.engines.group_contract import GroupBackend
    from pyspark_pykafka.engines.metadata_contract import MetadataBackend
    from pyspark_pykafka.engines.transaction_contract import (
        FallbackId,
        LedgerRecord,
        TaskWriteResult,
    )
    from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
    from pyspark_pykafka.engines.wire_contract import (
        FetchingEngine,
        ManyRangesEngine,
        ProducingEngine,
        SamplingEngine,
    )
    from pyspark_pykafka.offsets import OffsetRange, Offsets, TopicPartition
    from pyspark_pykafka.settings import KafkaSettings

logger = logging.getLogger("pyspark_pykafka")

_WIRE = "pyspark_pykafka.engines.wire"
_DECODER, _ENCODER = f"{_WIRE}.records._decoder", f"{_WIRE}.records._encoder"


def fetch(requested: OffsetRange, settings: FetchSettings) -> Iterator[pa.RecordBatch]:
    """
    Yield the records of a range in offset order, through the engine that the settings choose.

    Raises :class:`OptionsError` if the option ``engine`` is ``wire`` and that engine cannot be used
    here, and as :func:`with_client_rack` does.
    """
    settings = with_client_rack(settings)
    if settings.engine == "librdkafka":
        return _fetch_by_librdkafka(requested, settings)
    reason = wire_read_unavailable_reason(settings.kafka)
    if reason is None:
        return _fetch_by_wire(requested, settings)
    if settings.engine == "wire":
        raise _wire_unavailable_error(reason)
    _log_fallback_once("reading", reason)
    return _fetch_by_librdkafka(requested, settings)


def fetch_many(
    ranges: Iterable[OffsetRange], settings: FetchSettings, max_records: int | None = None
) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
    """
    Yield the records of several ranges, each batch with its range: the first ``max_records`` of
    each range, or all if ``max_records`` is None.

    The records of one range come in offset order; the ranges are interleaved. The wire engine sends
    one request to each leader for many partitions, and reads from leaders, not from replicas in the
    client's rack; librdkafka reads one range after the other. Raises as :func:`fetch` does.
    """
    requested = list(ranges)
    fetch_one = partial(fetch, settings=settings)
    is_wire = (
        settings.engine != "librdkafka" and wire_read_unavailable_reason(settings.kafka) is None
    )
    if is_wire and (len(requested) > 1 or max_records is not None):
        reader = cast("ManyRangesEngine", import_module(f"{_WIRE}.consumer.ranges_reader"))
        yield from reader.fetch_many(requested, settings, max_records, fetch_one)
        return
    for offset_range in requested:
        for batch in first_records(fetch_one, offset_range, max_records):
            yield offset_range, batch


def produce(
    batches: Iterable[pa.RecordBatch], kafka: KafkaSettings, topic: str | None, engine: str
) -> int:
    """
    Write every row through the chosen engine; return the number of acknowledged records.

    ``topic`` takes precedence over the column ``topic``. Raises :class:`OptionsError` if ``engine``
    is ``wire`` and that engine cannot be used here.
    """
    if _writes_by_wire(kafka, engine):
        return _producing_engine().produce(batches, kafka, topic)
    from pyspark_pykafka.engines.librdkafka.producer import produce as produce_by_librdkafka

    return produce_by_librdkafka(batches, kafka, topic)


# Cached, since Spark creates the writer of a stream again for each micro-batch.
@lru_cache(maxsize=64)
def check_topic(kafka: KafkaSettings, topic: str, engine: str) -> None:
    """
    Raise :class:`MissingTopicError` if a topic to write to is still missing after some seconds.

    The driver calls this before a write; otherwise each attempt of each task would wait for the
    topic. Raises :class:`OptionsError` as :func:`produce` does, and the error of brokers that
    cannot be reached.
    """
    if _writes_by_wire(kafka, engine):
        _producing_engine().check_topic(kafka, topic)
        return
    from pyspark_pykafka.engines.librdkafka.producer import check_topic as check_by_librdkafka

    check_by_librdkafka(kafka, topic)


# Cached, as the check of a topic is.
@lru_cache(maxsize=64)
def check_brokers(kafka: KafkaSettings, engine: str) -> None:
    """
    Raise the error of brokers that cannot be reached or reject the login.

    The driver calls this before a write whose rows name their topics. Raises :class:`OptionsError`
    as :func:`produce` does.
    """
    if _writes_by_wire(kafka, engine):
        _producing_engine().check_brokers(kafka)
        return
    from pyspark_pykafka.engines.librdkafka.producer import check_brokers as check_by_librdkafka

    check_by_librdkafka(kafka)


def _writes_by_wire(kafka: KafkaSettings, engine: str) -> bool:
    reason = None if engine == "librdkafka" else wire_write_unavailable_reason(kafka)
    if reason is not None:
        if engine == "wire":
            raise _wire_unavailable_error(reason)
        _log_fallback_once("writing", reason)
    return engine != "librdkafka" and reason is None


def write_in_transaction(
    batches: Iterable[pa.RecordBatch],
    kafka: KafkaSettings,
    topic: str | None,
    transactional_id: str,
    *,
    fallback: FallbackId | None = None,
    ledger_record: LedgerRecord | None = None,
    fence_id: str | None = None,
    check_not_stopped: Callable[[], None] | None = None,
) -> TaskWriteResult:
    """
    Write every row and the ledger record into a transaction, and leave the transaction open.

    An open transaction with this id is aborted, unless there is a ``fallback``: then the fallback
    id is used instead. The brokers abort the new transaction after
    ``kafka.transaction.timeout.ms``; it is not left open if they know ``fence_id``.
    ``check_not_stopped`` is that of :class:`TransactionSpec`. Raises :class:`OptionsError` where
    the wire engine cannot be used: librdkafka cannot hand over an open transaction.
    """
    check_transactions(kafka)
    from pyspark_pykafka.engines.transaction_contract import TransactionSpec, never_stopped

    timeout_ms = transaction_timeout_ms(kafka)
    check = check_not_stopped or never_stopped
    transaction = TransactionSpec(
        transactional_id, timeout_ms, fallback, ledger_record, fence_id, check
    )
    return _producing_engine().write_in_transaction(batches, kafka, topic, transaction)


def transaction_client(kafka: KafkaSettings) -> AbstractContextManager[Transactions]:
    """
    Lend a client that finds and ends transactions.

    Raises :class:`OptionsError` as :func:`write_in_transaction` does.
    """
    check_transactions(kafka)
    return _producing_engine().transaction_client(kafka)


def check_transactions(kafka: KafkaSettings) -> None:
    """
    Raise :class:`OptionsError` if transactions are not available here.
    """
    reason = wire_write_unavailable_reason(kafka)
    if reason is not None:
        msg = f"transactions need the wire engine, which cannot be used: {reason}"
        raise OptionsError((msg,))


def bytes_per_offset(positions: Offsets, settings: FetchSettings) -> dict[TopicPartition, float]:
    """
    Return the approximate bytes per offset in the log, at each position that has records.

    Raises as :func:`sample_byte_densities` does, and the error of a partition that could not be
    sampled.
    """
    samples = sample_byte_densities(positions, settings)
    for error in samples.errors.values():
        raise error
    return samples.densities


def sample_byte_densities(positions: Offsets, settings: FetchSettings) -> DensitySamples:
    """
    Return the approximate bytes per offset in the log, and the retriable errors of partitions.

    Raises :class:`OptionsError` where the wire engine cannot be used: librdkafka hides the sizes.
    """
    reason = wire_read_unavailable_reason(settings.kafka)
    if settings.engine == "librdkafka":
        reason = "the option engine is 'librdkafka'"
    if reason is not None:
        msg = (
            f"maxBytesPerTrigger needs the wire engine to see how large records are: {reason}; "
            "use maxOffsetsPerTrigger instead"
        )
        raise OptionsError((msg,))
    sampling = cast("SamplingEngine", import_module(f"{_WIRE}.consumer.density_samples"))
    return sampling.sample_byte_densities(positions, settings)


def metadata_backend(kafka: KafkaSettings, isolation_level: str, engine: str) -> MetadataBackend:
    """
    Return the driver's client for partitions and offsets.

    It uses the wire engine's connections wherever the settings allow that, whichever engine reads
    the records: librdkafka trusts one broker's metadata (invariant R18). Raises
    :class:`OptionsError` if ``engine`` is ``wire`` and that engine cannot be used here.
    """
    if engine == "wire" and (reason := wire_read_unavailable_reason(kafka)) is not None:
        raise _wire_unavailable_error(reason)
    # No compiled module is needed for this.
    if wire_unsupported_reason(kafka) is not None:
        from pyspark_pykafka.engines.librdkafka.metadata import AdminMetadata

        return AdminMetadata(kafka, isolation_level)
    from pyspark_pykafka.engines.wire.consumer.metadata import WireMetadata

    return WireMetadata(kafka, isolation_level)


def group_backend(kafka: KafkaSettings) -> GroupBackend:
    """
    Return a client for requests about consumer groups.

    It uses the wire engine's connections wherever the settings allow that, whichever engine reads
    the records: librdkafka can abort the process (its issue 4605). Only librdkafka can connect with
    the other settings, such as Kerberos, tokens of an OpenID provider and PKCS#12 stores.
    """
    # No compiled module is needed for this.
    if wire_unsupported_reason(kafka) is not None:
        from pyspark_pykafka.engines.librdkafka.groups import AdminGroups

        return AdminGroups(kafka)
    from pyspark_pykafka.engines.wire.consumer.groups import WireGroups

    return WireGroups(kafka)


# Every task calls this with the same settings.
@lru_cache(maxsize=16)
def wire_read_unavailable_reason(kafka: KafkaSettings) -> str | None:
    """
    Return why the wire engine cannot read in this process, or None if it can.
    """
    return _missing_module_reason(_DECODER) or wire_unsupported_reason(kafka)


@lru_cache(maxsize=16)
def wire_write_unavailable_reason(kafka: KafkaSettings) -> str | None:
    """
    Return why the wire engine cannot write in this process, or None if it can.
    """
    return _missing_module_reason(_ENCODER) or wire_write_unsupported_reason(kafka)


def broker_versions(kafka: KafkaSettings) -> Mapping[int, tuple[int, int]] | None:
    """
    Return the lowest and highest version of each API that a broker supports, by API key.

    Returns None if no bootstrap server answers, or if only librdkafka supports the settings.
    """
    if wire_unsupported_reason(kafka) is not None:
        return None
    from pyspark_pykafka.engines.wire.network.bootstrap_check import bootstrap_versions

    return bootstrap_versions(kafka)


def _missing_module_reason(module: str) -> str | None:
    if find_spec(module) is not None:
        return None
    return (
        "its compiled module is not installed; install a wheel of pyspark-pykafka for this "
        "platform, or a C compiler before you install from source"
    )


def _wire_unavailable_error(reason: str) -> OptionsError:
    msg = f"engine is 'wire', which cannot be used: {reason}; it must be: auto or librdkafka"
    return OptionsError((msg,))


# Imported by name, since these modules import compiled modules, which may be missing.
def _producing_engine() -> ProducingEngine:
    return cast("ProducingEngine", import_module(f"{_WIRE}.producer.producer"))


def _fetching_engine() -> FetchingEngine:
    return cast("FetchingEngine", import_module(f"{_WIRE}.consumer.range_reader"))


def _fetch_by_librdkafka(
    requested: OffsetRange, settings: FetchSettings
) -> Iterator[pa.RecordBatch]:
    from pyspark_pykafka.engines.librdkafka.consumer import fetch as fetch_by_librdkafka

    return fetch_by_librdkafka(requested, settings)


def _fetch_by_wire(requested: OffsetRange, settings: FetchSettings) -> Iterator[pa.RecordBatch]:
    wire = _fetching_engine()
    try:
        yield from wire.fetch(requested, settings)
    except wire.OldFormatError as error:
        _log_fallback_once(
            "reading", f"{requested.tp} holds records in the old message format {error.magic}"
        )
        rest = error.rest
    else:
        return
    yield from _fetch_by_librdkafka(rest, settings)


@lru_cache(maxsize=64)
def _log_fallback_once(action: str, reason: str) -> None:
    logger.warning("%s with librdkafka, which is slower: %s", action, reason)
