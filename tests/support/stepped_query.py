"""
A streaming read without Spark: a test runs one micro-batch after the other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.source.micro_batch_stream import MicroBatchStream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.memory_cluster import Cluster

    from pyspark_pykafka.offsets import Document, OffsetRange

RECORD_BYTES = 1e6


def checkpointed(document: Document) -> Document:
    """
    Return the document as it is read back from the checkpoint.
    """
    stored: Document = json.loads(json.dumps(document))
    return stored


@dataclass
class SteppedQuery:
    """
    A query and its checkpoint: calls the stream as Spark does.
    """

    cluster: Cluster
    options: dict[str, str]
    position: Document | None = None
    stream: MicroBatchStream = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self, **changed: str) -> None:
        """
        Start a new process, with changed options.
        """
        self.options |= changed
        self.stream = MicroBatchStream(
            parse_stream_source(self.options),
            self.cluster,
            lambda offsets: dict.fromkeys(offsets, RECORD_BYTES),
        )

    def next_ranges(self, *, limited: bool = True) -> Sequence[OffsetRange]:
        """
        Run one micro-batch if there is one, and return its ranges.
        """
        start = self.stream.initial_offset() if self.position is None else self.position
        end = checkpointed(self.stream.latest_offset(checkpointed(start), limited=limited))
        ranges = self.stream.plan(checkpointed(start), end).ranges
        self.position = end
        return ranges
