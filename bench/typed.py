"""
Measures reads of JSON, Avro and Protobuf values as typed columns, by pykafka and by Spark's
functions on raw values.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

from google.protobuf import descriptor_pb2
from pyspark.sql import functions as F  # noqa: N812 (how Spark's users know it)
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.protobuf.functions import from_protobuf

from bench.cases import CEILING, JVM, PYKAFKA, Case, TopicSpec, records_of, shuffled_rounds
from bench.documents import (
    FIELDS,
    FIVE,
    MESSAGE_NAME,
    MESSAGE_PREFIX,
    PREFIX,
    SCHEMA_ID,
    avro_schema,
    documents,
    protobuf_file,
)
from bench.figures import check_records
from bench.load import loaded_topic
from bench.measurement import LEFT_OUT, Measurement, Series
from bench.processes import Cpu
from bench.reads import checksum_of, options_for, read_frame
from bench.registry import running_registry
from bench.session import collect_garbage, has_from_protobuf, jvm_pid
from bench.throughput import WrongReadError
from bench.typed_ceiling import TYPED_CEILING_FORMAT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import Column, DataFrame, SparkSession

    from pyspark_pykafka.testing import KafkaCluster

TYPED = "typed"
SIZE = 1024


@dataclass(frozen=True, slots=True)
class TypedCase:
    """
    Some fields of one topic, whose values are in ``format``: `json`, `avro` or `protobuf`.
    """

    format: str
    names: tuple[str, ...]
    topic: TopicSpec

    @property
    def name(self) -> str:
        """
        The name, such as `avro-1KB-5-fields`.
        """
        return f"{self.format}-1KB-{len(self.names)}-fields"

    @property
    def function(self) -> str:
        """
        Spark's function that decodes the values.
        """
        return f"from_{self.format}"

    @property
    def users_of_the_function(self) -> list[str]:
        """
        The JVM connector and pykafka, both with Spark's function.
        """
        return [JVM.name, f"{PYKAFKA.name}-{self.function}"]

    @property
    def ddl(self) -> str:
        """
        The Spark types of the fields.
        """
        return ", ".join(f"{name} {FIELDS[name]}" for name in self.names)

    def typed_options(self, registry: str) -> dict[str, str]:
        """
        Return the options with which pykafka decodes the values.
        """
        options = {"valueFormat": self.format, "flatten": "true"}
        return options if self.format == "json" else {**options, "schema.registry.url": registry}


def measure_typed(
    spark: SparkSession,
    kafka: KafkaCluster,
    formats: Sequence[str],
    rounds: int,
    records: int | None,
) -> Iterator[Measurement]:
    """
    Read five fields, then all, of each format, after checking that all contenders read the same.
    """
    for kind in formats:
        topic = TopicSpec(SIZE, "none", 2, records or records_of(SIZE), kind)
        with registry_of(kind) as registry, loaded_topic(spark, kafka, topic, documents(kind)):
            has_function = kind != "protobuf" or has_from_protobuf(spark)
            typed = TypedBench(spark, kafka.bootstrap, registry, rounds, has_function)
            for names in (FIVE, tuple(FIELDS)):
                yield typed.measure(TypedCase(kind, names, topic))


def registry_of(kind: str) -> AbstractContextManager[str]:
    """
    Return the registry with the schema of a format; JSON needs none.
    """
    if kind == "json":
        return nullcontext("")
    if kind == "avro":
        return running_registry(avro_schema(FIELDS), SCHEMA_ID)
    file = base64.b64encode(protobuf_file(FIELDS).SerializeToString()).decode()
    return running_registry(file, SCHEMA_ID, "PROTOBUF")


@dataclass(frozen=True, slots=True)
class TypedBench:
    """
    The environment of reads of typed topics; without ``has_function``, the contenders that use
    Spark's function are left out.
    """

    spark: SparkSession
    bootstrap: str
    registry: str
    rounds: int
    has_function: bool = True

    def contenders(self, case: TypedCase) -> list[str]:
        """
        Return the contenders: those with Spark's function, pykafka's decoder, and the ceiling.
        """
        users = case.users_of_the_function if self.has_function else []
        return [*users, TYPED, CEILING.name]

    def measure(self, case: TypedCase) -> Measurement:
        """
        Verify and warm up all contenders, then time the rounds.
        """
        self.verify(case)
        contenders = self.contenders(case)
        seconds: defaultdict[str, list[float]] = defaultdict(list)
        cpu_seconds: defaultdict[str, list[float]] = defaultdict(list)
        for order in shuffled_rounds(contenders, self.rounds, seed=case.name):
            for name in order:
                collect_garbage(self.spark)
                with Cpu(jvm_pid(self.spark)) as cpu:
                    read = read_frame(self.spark, partial(self.frame, case, name))
                check_records(f"{name} in {case.name}", case.topic.records, read.records)
                seconds[name].append(read.seconds)
                cpu_seconds[name].append(cpu.seconds)
        series = {
            name: Series(tuple(seconds[name]), tuple(cpu_seconds[name])) for name in contenders
        }
        facts = {**asdict(case.topic), **self.left_out(case)}
        return Measurement(case.name, "typed", series, case.topic.records, facts)

    def left_out(self, case: TypedCase) -> dict[str, list[str]]:
        """
        Return the contenders that are not measured, because the jar of Spark's function cannot be
        downloaded.
        """
        return {} if self.has_function else {LEFT_OUT: case.users_of_the_function}

    def verify(self, case: TypedCase) -> None:
        """
        Raise :class:`WrongReadError` if a contender reads different values; this also warms up.
        """
        sums = {
            name: checksum_of(self.frame(case, name), case.names) for name in self.contenders(case)
        }
        check_same_values(sums, case)

    def frame(self, case: TypedCase, name: str) -> DataFrame:
        """
        Return the fields of the values as a contender reads them.
        """
        if name == CEILING.name:
            return self.ceiling(case)
        contender = JVM if name == JVM.name else PYKAFKA
        options = options_for(contender, Case("batch", case.topic), self.bootstrap)
        reader = self.spark.read.format(contender.format).options(**options)
        if name == TYPED:
            return reader.options(**case.typed_options(self.registry)).schema(case.ddl).load()
        if contender is PYKAFKA:
            reader = reader.schema("value STRING" if case.format == "json" else "value BINARY")
        return reader.load().select(decoded_value(case).alias("value")).select("value.*")

    def ceiling(self, case: TypedCase) -> DataFrame:
        """
        Return the fields of the values as a Python data source yields them from memory.
        """
        reader = self.spark.read.format(TYPED_CEILING_FORMAT).option("format", case.format)
        return reader.options(records=case.topic.records, fields=",".join(case.names)).load()


def check_same_values(sums: Mapping[str, tuple[int, int]], case: TypedCase) -> None:
    """
    Raise :class:`WrongReadError` if a contender's checksum is not that of the JVM connector or,
    without it, of the ceiling.
    """
    base = JVM.name if JVM.name in sums else CEILING.name
    check_records("the checksum", case.topic.records, sums[base][0])
    wrong = [name for name in sums if sums[name] != sums[base]]
    if wrong:
        reference = "the JVM connector" if base == JVM.name else f"the {base}"
        msg = f"{', '.join(wrong)} and {reference} read different values of {case.topic.name}"
        raise WrongReadError(msg)


def decoded_value(case: TypedCase) -> Column:
    """
    Return the struct that Spark's function decodes from the column `value`.
    """
    if case.format == "json":
        return F.from_json(F.col("value").cast("string"), case.ddl)
    # Spark has no client of a registry. With a schema of some fields it skips the other fields.
    if case.format == "protobuf":
        message = F.expr(f"substring(value, {len(MESSAGE_PREFIX) + 1})")
        files = descriptor_pb2.FileDescriptorSet(file=[protobuf_file(case.names)])
        return from_protobuf(message, MESSAGE_NAME, binaryDescriptorSet=files.SerializeToString())
    body = F.expr(f"substring(value, {len(PREFIX) + 1})")
    return from_avro(body, avro_schema(FIELDS), {"avroSchema": avro_schema(case.names)})
