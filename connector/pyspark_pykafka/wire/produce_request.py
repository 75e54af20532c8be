"""
Kafka's Produce request, laid out by hand: record batches go out as they are, without a copy.

The schema is Kafka's ``ProduceRequest.json``: plain up to version 8, flexible (KIP-482) from 9 on.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_pykafka.wire.primitives import INT32, layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Buffer

    from pyspark_pykafka.offsets import TopicPartition

_ALL = -1
_FLEXIBLE = 9
_PLAIN = layout(flexible=False)

_ACKS_AND_TIMEOUT = struct.Struct(">hi")
_HEADER = struct.Struct(">hhi")


class _Header(NamedTuple):
    """
    What a connection asks of a request's header.
    """

    correlation: int
    client_id: str

    def get_response_class(self) -> Any:
        from kafka.protocol.producer import ProduceResponse

        return ProduceResponse


class ProduceRequest:
    """
    One request with one batch for each partition, to be acknowledged by all replicas in sync.

    A stand-in for kafka-python's class, which would copy every batch several times.
    """

    API_KEY = 0
    #: From the first with record batches to the last that names topics by name.
    valid_versions = (3, 12)
    name = "ProduceRequest"

    def __init__(
        self,
        batches: Mapping[TopicPartition, Sequence[Buffer]],
        timeout_ms: int,
        version: int,
        transactional_id: str | None = None,
    ) -> None:
        self.API_VERSION = version
        self.header = _Header(0, "")
        self._batches = batches
        self._timeout_ms = timeout_ms
        self._transactional_id = transactional_id

    def with_header(self, correlation_id: int, client_id: str) -> None:
        """
        Set what the header says.
        """
        self.header = _Header(correlation_id, client_id)

    def expect_response(self) -> bool:
        """
        Return True: with all acknowledgements there is an answer.
        """
        return True

    def encode(self, *, header: bool, framed: bool) -> list[Buffer]:
        """
        Return the request in pieces, its length before them.
        """
        assert header
        assert framed
        pieces = self._pieces()
        size = sum(len(memoryview(piece)) for piece in pieces)
        return [INT32.pack(size), *pieces]

    def _pieces(self) -> list[Buffer]:
        form = layout(flexible=self.API_VERSION >= _FLEXIBLE)
        pieces: list[Buffer] = [
            _HEADER.pack(self.API_KEY, self.API_VERSION, self.header.correlation),
            # The client's id has the old form in every version of the header.
            _PLAIN.string(self.header.client_id),
            form.tags,
            form.string(self._transactional_id),
            _ACKS_AND_TIMEOUT.pack(_ALL, self._timeout_ms),
        ]
        topics: dict[str, list[TopicPartition]] = {}
        for tp in self._batches:
            topics.setdefault(tp.topic, []).append(tp)
        pieces.append(form.count(len(topics)))
        for topic, tps in topics.items():
            pieces += [form.string(topic), form.count(len(tps))]
            for tp in tps:
                batch = self._batches[tp]
                size = sum(len(memoryview(piece)) for piece in batch)
                pieces += [INT32.pack(tp.partition), form.size(size), *batch, form.tags]
            pieces.append(form.tags)
        pieces.append(form.tags)
        return pieces
