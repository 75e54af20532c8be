"""
Planted faults of progress stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tests.simulation.planted.fault import Fault
from tests.simulation.workloads.progress_store import SimulatedStore

if TYPE_CHECKING:
    from tests.simulation.spark.connector import Connector


def planned_batch_is_recorded(connector: Connector) -> list[Any]:
    """
    The end of a micro-batch is recorded when it is planned, not when it is complete.
    """
    module = connector.module("source.micro_batch_stream")
    stream, offset = module.MicroBatchStream, module.StreamOffset
    original = stream.latest_offset

    def latest_offset(self: Any, start: Any, **options: Any) -> Any:
        end = original(self, start, **options)
        self._progress.record_completed(offset.from_json(end))
        return end

    return [patch.object(stream, "latest_offset", latest_offset)]


def old_process_writes_on(connector: Connector) -> list[Any]:
    """
    A process that was replaced claims the store again, and continues to write.
    """
    store = connector.module("progress.store")
    session = connector.module("progress.store_session")
    record = connector.module("progress.record").ProgressRecord

    def next_owner(owner: Any, last: Any) -> Any:
        epoch = 1 if last is None else last.epoch + 1
        return type(owner)(owner.query, owner.process, epoch)

    def advance(_: Any, completed: Any, owner: Any) -> Any:
        offsets = completed.offsets.items()
        return store.Advance({tp: record(offset, owner) for tp, offset in offsets}, {})

    return [
        patch.object(store, "next_owner", next_owner),
        patch.object(session, "advance", advance),
    ]


def late_write_is_accepted(_: Connector) -> list[Any]:
    """
    A store carries out the write of a driver that has died, although its successor has claimed the
    store and has written since.
    """
    return [patch.object(SimulatedStore, "_is_holder", lambda *_: True)]


FAULTS = {
    "planned-batch-is-recorded": Fault("progress", "progress ahead", planned_batch_is_recorded),
    "old-process-writes-on": Fault("progress", "progress went back", old_process_writes_on),
    "late-write-is-accepted": Fault("progress", "progress went back", late_write_is_accepted),
}
