"""
Measures reads of JSON and Avro values as typed columns, by pykafka and by Spark's functions on raw
values.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (how Spark's users know it)
from pyspark.sql.avro.functions import from_avro

from bench.cases import CEILING, JVM, PYKAFKA, Case, TopicSpec, records_of, shuffled_rounds
from bench.documents import FIELDS, FIVE, PREFIX, SCHEMA_ID, avro_schema, documents
from bench.figures import check_records
from bench.load import loaded_topic
from bench.measurement import Measurement, Series
from bench.processes import Cpu
from bench.reads import checksum_of, options_for, read_frame
from bench.registry import running_registry
from bench.session import collect_garbage, jvm_pid
from bench.throughput import WrongReadError
from bench.typed_ceiling import TYPED_CEILING_FORMAT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from pyspark_pykafka.testing import KafkaCluster

TYPED = "typed"
SIZE = 1024


@dataclass(frozen=True, slots=True)
class TypedCase:
    """
    Some fields of one topic, whose values are in ``format``: `json` or `avro`.
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
    def contenders(self) -> list[str]:
        """
        The JVM connector and pykafka, both with Spark's function; pykafka's decoder; the ceiling.
        """
        return [JVM.name, f"pykafka-from_{self.format}", TYPED, CEILING.name]

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
    with running_registry(avro_schema(FIELDS), SCHEMA_ID) as registry:
        typed = TypedBench(spark, kafka.bootstrap, registry, rounds)
        for kind in formats:
            topic = TopicSpec(SIZE, "none", 2, records or records_of(SIZE), kind)
            with loaded_topic(spark, kafka, topic, documents(kind)):
                for names in (FIVE, tuple(FIELDS)):
                    yield typed.measure(TypedCase(kind, names, topic))


@dataclass(frozen=True, slots=True)
class TypedBench:
    """
    The environment of reads of typed topics.
    """

    spark: SparkSession
    bootstrap: str
    registry: str
    rounds: int

    def measure(self, case: TypedCase) -> Measurement:
        """
        Verify and warm up all contenders, then time the rounds.
        """
        self.verify(case)
        seconds: defaultdict[str, list[float]] = defaultdict(list)
        cpu_seconds: defaultdict[str, list[float]] = defaultdict(list)
        for order in shuffled_rounds(case.contenders, self.rounds, seed=case.name):
            for name in order:
                collect_garbage(self.spark)
                with Cpu(jvm_pid(self.spark)) as cpu:
                    read = read_frame(self.spark, partial(self.frame, case, name))
                check_records(f"{name} in {case.name}", case.topic.records, read.records)
                seconds[name].append(read.seconds)
                cpu_seconds[name].append(cpu.seconds)
        series = {
            name: Series(tuple(seconds[name]), tuple(cpu_seconds[name])) for name in case.contenders
        }
        return Measurement(case.name, "typed", series, case.topic.records, asdict(case.topic))

    def verify(self, case: TypedCase) -> None:
        """
        Raise :class:`WrongReadError` if a contender reads different values; this also warms up.
        """
        sums = {name: checksum_of(self.frame(case, name), case.names) for name in case.contenders}
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
    Raise :class:`WrongReadError` if a contender's checksum is not that of the JVM connector.
    """
    check_records("the checksum", case.topic.records, sums[JVM.name][0])
    wrong = [name for name in sums if sums[name] != sums[JVM.name]]
    if wrong:
        msg = f"{', '.join(wrong)} and the JVM connector read different values of {case.topic.name}"
        raise WrongReadError(msg)


def decoded_value(case: TypedCase) -> Column:
    """
    Return the struct that Spark's function decodes from the column `value`.
    """
    if case.format == "json":
        return F.from_json(F.col("value").cast("string"), case.ddl)
    # Spark has no client of a registry. With a reader's schema it skips the other fields.
    body = F.expr(f"substring(value, {len(PREFIX) + 1})")
    return from_avro(body, avro_schema(FIELDS), {"avroSchema": avro_schema(case.names)})
