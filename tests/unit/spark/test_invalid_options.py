"""
Wrong options are reported as early as Spark allows, by the connector's own error.
"""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.types import StructType

from pyspark_pykafka import DefaultSource
from pyspark_pykafka.errors import OptionsError

READ = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"startingoffset": "earliest"},
        {"maxoffsetspertrigger": "many"},
        {"endingoffsets": "earliest"},
        {"kafka.bootstrap.servers": "kafka://b:1"},
        {"includeheaders": "yes"},
    ],
)
def test_load_reports_mistakes_of_batches_and_streams(wrong: dict[str, str]) -> None:
    """
    schema(), which Spark calls at load(), raises the mistakes that a batch and a stream share.
    """
    with pytest.raises(OptionsError, match="is not an option|it must be|would read nothing"):
        DefaultSource({**READ, **wrong}).schema()


@pytest.mark.parametrize(
    "valid",
    [
        {"startingoffsets": "latest"},
        {"maxoffsetspertrigger": "5"},
        {"endingoffsets": "latest"},
        {"minoffsetspertrigger": "9", "maxoffsetspertrigger": "1"},
        {"includeheaders": "true", "path": "p"},
    ],
)
def test_load_accepts_options_of_either_kind_of_read(valid: dict[str, str]) -> None:
    """
    At load() a read may still become a batch or a stream, so the options of both are accepted.
    """
    schema = DefaultSource({**READ, **valid}).schema()

    assert isinstance(schema, StructType)
    assert ("headers" in schema.names) == ("includeheaders" in valid)


def test_the_reader_of_an_invalid_stream_raises_on_first_use() -> None:
    """
    streamReader() raises nothing, since Spark would hide the error; each method of the reader does.
    """
    source = DefaultSource({**READ, "minoffsetspertrigger": "9", "maxoffsetspertrigger": "1"})
    schema = source.schema()
    assert isinstance(schema, StructType)
    reader = pickle.loads(pickle.dumps(source.streamReader(schema)))  # noqa: S301

    for use in (
        reader.initialOffset,
        reader.latestOffset,
        lambda: reader.partitions({}, {}),
        lambda: reader.read(None),
    ):
        with pytest.raises(OptionsError, match="minOffsetsPerTrigger is '9'; it must be"):
            use()
