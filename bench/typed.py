"""
Measures reads of JSON values as typed columns, by pykafka and by Spark's from_json on raw values.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (how Spark's users know it)

from bench.cases import JVM, PYKAFKA, Case, TopicSpec, records_of, shuffled_rounds
from bench.figures import check_records
from bench.load import loaded_topic
from bench.measurement import Measurement, Series
from bench.processes import Cpu
from bench.reads import checksum_of, options_for, read_frame
from bench.session import collect_garbage, jvm_pid
from bench.throughput import WrongReadError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from pyspark_pykafka.testing import KafkaCluster

TYPED, FROM_JSON = "typed", "pykafka-from_json"
NAMES = [JVM.name, FROM_JSON, TYPED]
SIZE = 1024
SAMPLES = 997
#: Twenty fields of a document: numbers, texts of 70 characters, and one that half of the documents
#: lack.
FIELDS = {
    **{f"long{i}": "BIGINT" for i in range(6)},
    **{f"double{i}": "DOUBLE" for i in range(4)},
    **{f"text{i}": "STRING" for i in range(9)},
    "optional": "BIGINT",
}
FIVE = ("long0", "double1", "text2", "long5", "optional")
_TEXT_LENGTH = 70
_LETTERS = "etaoinshrdlucmfwypvbgkqjxz "


def documents() -> list[bytes]:
    """
    Return different JSON documents of about 1 KB, identical in every run.
    """
    generator = random.Random(SIZE)  # noqa: S311 (data must be reproducible)
    return [_document(generator, with_optional=bool(i % 2)) for i in range(SAMPLES)]


def _document(generator: random.Random, *, with_optional: bool) -> bytes:
    document: dict[str, int | float | str] = {}
    for name, kind in FIELDS.items():
        if kind == "BIGINT":
            document[name] = generator.randrange(10**12)
        elif kind == "DOUBLE":
            document[name] = generator.random() * 1000
        else:
            document[name] = "".join(generator.choices(_LETTERS, k=_TEXT_LENGTH))
    if not with_optional:
        del document["optional"]
    return json.dumps(document, separators=(",", ":")).encode()


def measure_typed(
    spark: SparkSession, kafka: KafkaCluster, rounds: int, records: int | None
) -> Iterator[Measurement]:
    """
    Read five fields, then all, after checking that all contenders read the same values.
    """
    topic = TopicSpec(SIZE, "none", 2, records or records_of(SIZE))
    with loaded_topic(spark, kafka, topic, documents()):
        for names in (FIVE, tuple(FIELDS)):
            yield _measure(spark, kafka.bootstrap, topic, names, rounds)


def _measure(
    spark: SparkSession, bootstrap: str, topic: TopicSpec, names: tuple[str, ...], rounds: int
) -> Measurement:
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    cpu_seconds: defaultdict[str, list[float]] = defaultdict(list)
    _verify(spark, bootstrap, topic, names)
    case = f"json-1KB-{len(names)}-fields"
    for order in shuffled_rounds(NAMES, rounds, seed=case):
        for name in order:
            collect_garbage(spark)
            with Cpu(jvm_pid(spark)) as cpu:
                load = partial(typed_frame, spark, name, bootstrap, topic, names)
                read = read_frame(spark, load)
            check_records(f"{name} in {case}", topic.records, read.records)
            seconds[name].append(read.seconds)
            cpu_seconds[name].append(cpu.seconds)
    series = {name: Series(tuple(seconds[name]), tuple(cpu_seconds[name])) for name in NAMES}
    return Measurement(case, "typed", series, topic.records, asdict(topic))


def _verify(spark: SparkSession, bootstrap: str, topic: TopicSpec, names: tuple[str, ...]) -> None:
    """
    Raise :class:`WrongReadError` if a contender reads different values; this also warms up.
    """
    sums = {
        name: checksum_of(typed_frame(spark, name, bootstrap, topic, names), names)
        for name in NAMES
    }
    check_records("the checksum", topic.records, sums[JVM.name][0])
    wrong = [name for name in NAMES if sums[name] != sums[JVM.name]]
    if wrong:
        msg = f"{', '.join(wrong)} and the JVM connector read different values of {topic.name}"
        raise WrongReadError(msg)


def typed_frame(
    spark: SparkSession, name: str, bootstrap: str, topic: TopicSpec, names: tuple[str, ...]
) -> DataFrame:
    """
    Return the fields of the values as a contender reads them.
    """
    ddl = ", ".join(f"{field} {FIELDS[field]}" for field in names)
    contender = JVM if name == JVM.name else PYKAFKA
    options = options_for(contender, Case("batch", topic), bootstrap)
    reader = spark.read.format(contender.format).options(**options)
    if name == TYPED:
        reader = reader.options(valueFormat="json", flatten="true")
        return reader.schema(ddl).load()
    raw = (reader.schema("value STRING") if name == FROM_JSON else reader).load()
    value = F.from_json(F.col("value").cast("string"), ddl)
    return raw.select(value.alias("value")).select("value.*")
