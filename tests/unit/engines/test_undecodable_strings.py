"""
Rows whose strings are not UTF-8, which Spark does not check: both engines raise the same errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pyspark_pykafka.engines.librdkafka.rows import rows_of
from pyspark_pykafka.engines.wire.records._encoder import RecordEncoder
from pyspark_pykafka.engines.wire.records.arrow_encoder import ArrowEncoder
from pyspark_pykafka.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Callable

    Write = Callable[[pa.RecordBatch, str | None], None]


def strings(*values: bytes | None) -> pa.Array:
    """
    Return a column of strings with these bytes.
    """
    unchecked = pc.CastOptions(target_type=pa.string(), allow_invalid_utf8=True)
    return pa.array(values, pa.binary()).cast(options=unchecked)


def rows(**columns: pa.Array) -> pa.RecordBatch:
    """
    Return a batch of the columns.
    """
    return pa.RecordBatch.from_pydict(columns)


def by_wire(batch: pa.RecordBatch, topic: str | None) -> None:
    """
    Encode the rows for a topic of one partition, and accept small records only.
    """
    encoder = ArrowEncoder(topic, lambda *_: (1, (0,)), RecordEncoder(1_000, 1_000, 0), 10_000)
    for _ in (*encoder.batches(batch), *encoder.flush()):
        pass


def by_librdkafka(batch: pa.RecordBatch, topic: str | None) -> None:
    """
    Convert the rows for the producer.
    """
    for row in rows_of(batch, topic):
        assert row.description


WRITERS = [by_wire, by_librdkafka]


@pytest.mark.parametrize("write", WRITERS)
def test_topic(write: Write) -> None:
    """
    A topic that is not UTF-8 is an error that names it, its row and the row's key.
    """
    batch = rows(
        topic=strings(b"t", b"t", b"\xff\xfe", b"\xfd"), key=strings(b"1", b"2", b"\xfa", b"4")
    )

    with pytest.raises(
        RecordError, match=r"topic b'\\xff\\xfe' is not .*row 2 .*b'\\xfa'"
    ) as error:
        write(batch, None)
    assert error.value.condition == "INVALID_TOPIC"


@pytest.mark.parametrize("write", WRITERS)
def test_key_of_a_row_without_a_topic(write: Write) -> None:
    """
    The error for a row without a topic shows the bytes of the row's key.
    """
    batch = rows(topic=pa.array([None], pa.string()), key=strings(b"\xff"))

    with pytest.raises(RecordError, match=r"null topic .* b'\\xff'"):
        write(batch, None)


@pytest.mark.parametrize(
    ("columns", "condition"),
    [
        ({"value": pa.array([b"v" * 2_000])}, "MSG_SIZE_TOO_LARGE"),
        ({"partition": pa.array([7], pa.int32())}, "UNKNOWN_PARTITION"),
    ],
)
def test_key_of_a_refused_row(columns: dict[str, Any], condition: str) -> None:
    """
    The error for a refused row gives the reason, even if the key of the row is not UTF-8.
    """
    batch = rows(key=strings(b"\xff"), **columns)

    with pytest.raises(RecordError, match=r"key b'\\xff' for topic 't'") as error:
        by_wire(batch, "t")
    assert error.value.condition == condition


def test_header_key() -> None:
    """
    A header key that is not UTF-8 is written by the engine wire; the error of librdkafka names it.
    """
    pairs = pa.StructArray.from_arrays(
        [strings(b"a", b"\xfe"), pa.array([b"", b""])], ["key", "value"]
    )
    batch = rows(headers=pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), pairs))

    by_wire(batch, "t")
    with pytest.raises(RecordError, match=r"header key b'\\xfe', .* engine 'wire' can") as error:
        by_librdkafka(batch, "t")
    assert error.value.condition == "INVALID_HEADER_KEY"
