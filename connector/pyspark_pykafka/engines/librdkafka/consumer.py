"""
Reads one range of offsets through librdkafka's consumer into Arrow batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.client_pool import ClientPool
from pyspark_pykafka.engines.contract import (
    FetchSettings,
    report_lost_topic,
    resolve_range,
    with_end_not_before_start,
)
from pyspark_pykafka.engines.error_mapping import map_read_error, translating_errors
from pyspark_pykafka.engines.librdkafka.assigned_range import AssignedRange
from pyspark_pykafka.engines.librdkafka.client import Client, request_watermarks
from pyspark_pykafka.engines.librdkafka.confirmed_watermarks import (
    ConfirmedWatermarks,
    confirm_watermarks,
    read_high_watermark,
)
from pyspark_pykafka.engines.librdkafka.planned_topic import is_planned_topic
from pyspark_pykafka.engines.librdkafka.range_reader import RangeReader
from pyspark_pykafka.errors import OffsetsError, StalledReadError
from pyspark_pykafka.settings.librdkafka_config import consumer_config

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import pyarrow as pa

    from pyspark_pykafka.offsets import OffsetRange

_pool: ClientPool[Client] = ClientPool(Client.close, lambda client: not client.is_stale)

# How many clients, one after another, may read from a leader that other brokers do not confirm:
# each client finds the brokers of the cluster itself, and may get its metadata from a stale broker.
_MAX_STALE_CLIENTS = 10


def fetch(requested: OffsetRange, settings: FetchSettings) -> Iterator[pa.RecordBatch]:
    """
    Yield the records of a range in offset order; ``earliest`` and ``latest`` are resolved first.

    Raises :class:`DataLossError` if records of the range are gone and ``fail_on_data_loss`` is set;
    otherwise logs the offsets that were skipped. Raises the other errors of
    :mod:`pyspark_pykafka.errors`.
    """
    if requested.topic_id is None:
        yield from _fetch_any_topic(requested, settings)
    else:
        yield from _fetch_planned_topic(requested, settings)


def _fetch_planned_topic(
    requested: OffsetRange, settings: FetchSettings
) -> Iterator[pa.RecordBatch]:
    """
    Yield the records of a range with a topic id, or report a lost topic if its id has changed.

    librdkafka reports no topic ids with records, so the ids are compared before the first record
    and after the last one: no other topic ever has the same id. The last batch is yielded after the
    second comparison.
    """
    # Invariant R15 (topic id).
    last: pa.RecordBatch | None = None
    try:
        if is_planned_topic(requested, settings):
            for batch in _fetch_any_topic(requested, settings):
                if last is not None:
                    yield last
                last = batch
            if is_planned_topic(requested, settings):
                if last is not None:
                    yield last
                return
    except (OffsetsError, StalledReadError):
        # A topic that was recreated may end before the range starts, and librdkafka may wait for
        # its records.
        if is_planned_topic(requested, settings):
            raise
    report_lost_topic(requested, fail=settings.fail_on_data_loss)


def _fetch_any_topic(requested: OffsetRange, settings: FetchSettings) -> Iterator[pa.RecordBatch]:
    confirmed = None
    if not requested.resolved:
        confirmed = confirm_watermarks(settings.kafka, requested.tp, settings.isolation_level)
    rest = yield from _fetch(requested, settings, confirmed)
    for _ in range(_MAX_STALE_CLIENTS - 1):
        if rest is None:
            return
        rest = yield from _fetch(rest.range, settings, rest.confirmed, is_lost=rest.is_lost)
    if rest is not None:
        msg = (
            f"{rest.range} cannot be read with librdkafka: {_MAX_STALE_CLIENTS} clients in a row "
            f"did not read from the leader {rest.confirmed.leader}, whose log has the records; is "
            "a broker cut off from its controllers?"
        )
        raise StalledReadError(msg)


class _Rest(NamedTuple):
    """
    The rest of a range, which seems to be lost, and the log according to two brokers' metadata.
    """

    range: OffsetRange
    confirmed: ConfirmedWatermarks

    @property
    def is_lost(self) -> bool:
        """
        Whether the log of the confirmed leader does not have the rest either.
        """
        log_start, visible_end = self.confirmed.watermarks
        return not log_start <= self.range.start < visible_end


def _fetch(
    requested: OffsetRange,
    settings: FetchSettings,
    confirmed: ConfirmedWatermarks | None,
    *,
    is_lost: bool = False,
) -> Generator[pa.RecordBatch, None, _Rest | None]:
    """
    Yield the records that a client reads, and return the rest if it seems to be lost.

    With ``is_lost``, or if no other broker can confirm the loss, the rest is reported as data loss
    instead.
    """
    config = consumer_config(
        settings.kafka, group_id=settings.group_id, isolation_level=settings.isolation_level
    )
    config.setdefault("queued.max.messages.kbytes", str(settings.fetch_bytes // 1024))
    if confirmed is not None:
        config["bootstrap.servers"] = confirmed.leader
    key = frozenset(config.items())
    with (
        _pool.borrow(key, lambda: Client(config)) as client,
        translating_errors(f"reading {requested}", map_read_error),
    ):
        resolved = _resolve(requested, client, settings, confirmed)
        assigned = AssignedRange(client, settings, resolved, is_lost)
        try:
            yield from RangeReader(assigned).batches()
        finally:
            client.consumer.unassign()
        if assigned.unconfirmed_loss is None:
            return None
        client.is_stale = True
        confirmed = confirm_watermarks(settings.kafka, requested.tp, settings.isolation_level)
        if confirmed is not None:
            return _Rest(assigned.rest, confirmed)
        assigned.report_unconfirmed_loss()
        return None


def _resolve(
    requested: OffsetRange,
    client: Client,
    settings: FetchSettings,
    confirmed: ConfirmedWatermarks | None,
) -> OffsetRange:
    if requested.resolved:
        return requested
    watermarks = (
        request_watermarks(client, requested, settings)
        if confirmed is None
        else confirmed.watermarks
    )
    watermarks = with_end_not_before_start(
        requested, watermarks, lambda: read_high_watermark(settings.kafka, requested.tp)
    )
    return resolve_range(requested, watermarks, fail_on_data_loss=settings.fail_on_data_loss)
