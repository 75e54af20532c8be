"""
The imports of a fresh process, a part of every query's first batch, and the public names.
"""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path

import pytest
from tests.support.fresh_process import modules_after

import pyspark_pykafka

ROOT = Path(__file__).parents[2]
API_PAGE = (ROOT / "docs" / "api.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

READING = """
import sys
import pyarrow as pa
from pyspark_pykafka.schema import SOURCE_TYPES
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.engines.wire.records.compression import Decompressor
from pyspark_pykafka.engines.wire.records.arrow_decoder import ArrowDecoder
from tests.support.record_batches import Batch, Record

arrow_decoder = ArrowDecoder.of_range(
    TopicPartition("t", 3), 0, 2, pa.schema(SOURCE_TYPES.items()), Decompressor(1 << 20),
    max_records=10, max_bytes=1 << 20, check_crcs=True,
)
records = Batch(0, 1, (Record(0, value=b"a"), Record(1, value=b"b"))).encode()
batches = [*arrow_decoder.batches(records, ()), *arrow_decoder.flush()]
rows = pa.Table.from_batches(batches)
assert rows["topic"].to_pylist() == ["t", "t"]
assert rows["partition"].to_pylist() == [3, 3]
"""

TYPED = """
import pyarrow as pa
from tests.support.fetching import settings
from pyspark_pykafka.formats.record_decoder import decode_records
from pyspark_pykafka.formats.read_format import make_read_format
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.options import FormatOptions

schema = pa.schema([("value", pa.struct([("a", pa.int64())])), ("key", pa.string()),
                    ("_error", pa.string()), ("topic", pa.string())])
typed = make_read_format(FormatOptions("json", "text", on_bad_record="rescue"), schema,
                      include_headers=False)
def text(kind, value):
    ends = pa.py_buffer(bytes(4) + len(value).to_bytes(4, "little"))
    return pa.Array.from_buffers(kind, 1, [None, ends, pa.py_buffer(value)])
offset = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(bytes(8))])
columns = {"value": text(pa.binary(), b'{"a":1}'), "key": text(pa.binary(), b"k"),
           "topic": text(pa.string(), b"t"), "offset": offset}
batch = pa.RecordBatch.from_arrays([columns[name] for name in typed.record_schema.names],
                                   schema=typed.record_schema)
(rows,) = decode_records([batch, batch], TopicPartition("t", 0), typed, settings("b:1", "wire"))
assert rows.to_pylist() == 2 * [{"value": {"a": 1}, "key": "k", "_error": None, "topic": "t"}]
"""

#: Finds the format in the way of Spark's `lookup_data_sources`.
LOOKUP = """
from pyspark.sql.datasource import DataSource
import pyspark_pykafka as mod
assert hasattr(mod, "DefaultSource") and issubclass(mod.DefaultSource, DataSource)
assert mod.DefaultSource.name() == "pykafka"
"""

CLIENTS = {"confluent_kafka", "kafka", "kazoo"}
FOR_DRIVER_PROGRAMS = {
    "pyspark_pykafka.audit.observer",
    "pyspark_pykafka.failures.restarts",
    "pyspark_pykafka.failures.bisection",
    "pyspark_pykafka.metrics.listener",
    "pyspark_pykafka.progress.listener",
}


@pytest.mark.parametrize(
    ("code", "left_out"),
    [
        pytest.param(
            "import pyspark_pykafka",
            {"pyspark", "pyarrow", "pandas"} | CLIENTS | FOR_DRIVER_PROGRAMS,
            id="package",
        ),
        pytest.param(LOOKUP, {"pandas"} | CLIENTS | FOR_DRIVER_PROGRAMS, id="lookup"),
        pytest.param(
            "import pyspark_pykafka.spark.datasource",
            {"confluent_kafka", "kafka", "pandas"},
            id="source",
        ),
        pytest.param(
            "import pyspark_pykafka.spark.batch_reader, pyspark_pykafka.engines.selection",
            {"confluent_kafka", "kafka", "pandas"},
            id="reader",
        ),
        pytest.param(READING, {"confluent_kafka", "pandas"}, id="reading"),
        pytest.param(TYPED, {"pandas"} | CLIENTS, id="typed"),
    ],
)
def test_heavy_libraries_are_imported_on_first_use(code: str, left_out: set[str]) -> None:
    """
    pandas, which pyarrow imports for single values, takes a quarter of a second, and each Kafka
    client a tenth; a process imports them only when it uses them.
    """
    assert not left_out & modules_after(code)


def test_public_names() -> None:
    """
    The package offers exactly these names, and `dir` lists them before their first use.
    """
    assert pyspark_pykafka.__all__ == [
        "AuditListener",
        "Auditor",
        "DeadLetterTopic",
        "DefaultSource",
        "MetricsListener",
        "PoisonPolicy",
        "ProgressListener",
        "RestartPolicy",
        "isolate_poison",
        "mount",
        "register",
        "supervise",
    ]
    assert set(pyspark_pykafka.__all__) < set(dir(pyspark_pykafka))


@pytest.mark.parametrize("name", pyspark_pykafka.__all__)
def test_public_name_is_the_one_of_its_module(name: str) -> None:
    """
    Each public name is the object of the module that defines it, so that it pickles by that module.
    """
    value = getattr(pyspark_pykafka, name)

    assert value.__name__ == name
    assert pickle.loads(pickle.dumps(value)) is value  # noqa: S301 (our own)


@pytest.mark.parametrize("name", pyspark_pykafka.__all__)
def test_public_name_is_documented(name: str) -> None:
    """
    The API page has a section for each public name, an example of it, and all its parameters.
    """
    match = re.search(rf"^### `{name}`\n(.*?)(?=^##|\Z)", API_PAGE, re.MULTILINE | re.DOTALL)
    assert match is not None
    section = match[1]
    parameters = inspect.signature(getattr(pyspark_pykafka, name)).parameters

    # Spark makes the source, so its options are those of the options page.
    documented = parameters if name != "DefaultSource" else ()
    assert [public_name for public_name in documented if f"`{public_name}`" not in section] == []
    assert f"{name}" in "".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL))


def test_unknown_name_raises() -> None:
    """
    A name that the package does not have raises AttributeError, as in any other module.
    """
    with pytest.raises(AttributeError, match="'pyspark_pykafka' has no attribute 'supervisor'"):
        pyspark_pykafka.supervisor  # noqa: B018
