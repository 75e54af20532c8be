"""
Parses the command line into a plan of measurements.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.cases import (
    DEFAULT_PARTITIONS,
    DEFAULT_READERS,
    FETCH_ONLY,
    READERS,
    RECORDS,
    WRITERS,
    Contender,
    TopicSpec,
    records_of,
    topics,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

CODECS = ("none", "lz4", "zstd", "snappy", "gzip")
MODES = ("batch", "stream")
FORMATS = ("json", "avro", "protobuf")
PARTS = (
    *("throughput", "writes", "typed", "latency", "planning", "first", "memory", "audit"),
    "commits",
)
WRITTEN_SIZES = (100, 1024)
GIGABYTES = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """
    The measurements of one run.
    """

    name: str
    quick: bool
    parts: tuple[str, ...]
    topics: tuple[TopicSpec, ...]
    modes: tuple[str, ...]
    contenders: tuple[Contender, ...]
    written: tuple[TopicSpec, ...]
    writers: tuple[Contender, ...]
    rounds: int
    cores: int
    conf: Mapping[str, str]
    planning: tuple[int, ...]
    turns: int
    seconds: float
    memory_bytes: int
    records: int | None
    formats: tuple[str, ...]


def parse(arguments: Sequence[str], name: str) -> Plan:
    """
    Return the plan for the arguments; ``name`` is the default name of the results.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    quick = bool(options.quick)
    sizes = options.sizes or ((100, 1024) if quick else tuple(RECORDS))
    counts = {size: options.records or records_of(size, quick=quick) for size in sizes}
    codecs = options.codecs or (("none",) if quick else CODECS[:3])
    partitions = options.partitions or (DEFAULT_PARTITIONS,)
    modes = options.modes or (MODES[:1] if quick else MODES)
    contenders = tuple(READERS[reader] for reader in options.contenders or DEFAULT_READERS)
    if FETCH_ONLY in contenders and "stream" in modes:
        parser.error(f"{FETCH_ONLY.name} has no streaming read: set --modes batch")
    return Plan(
        name=options.name or ("quick" if quick else name),
        quick=quick,
        parts=options.parts or (PARTS[:1] if quick else PARTS),
        topics=tuple(topics(sizes, codecs, partitions, counts)),
        modes=modes,
        contenders=contenders,
        written=_written(options),
        writers=tuple(WRITERS[writer] for writer in options.writers or WRITERS),
        rounds=options.rounds or (3 if quick else 5),
        cores=options.cores,
        conf=dict(options.conf),
        planning=options.planning,
        turns=options.turns,
        seconds=options.seconds,
        memory_bytes=int(options.memory_gb * 1024**3),
        records=options.records,
        formats=options.formats or FORMATS,
    )


def _written(options: argparse.Namespace) -> tuple[TopicSpec, ...]:
    sizes = options.sizes or WRITTEN_SIZES
    # Fewer records: a write takes longer than a read.
    counts = {size: options.records or records_of(size, quick=True) for size in sizes}
    return tuple(topics(sizes, ("none",), options.partitions or (DEFAULT_PARTITIONS,), counts))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="only batch reads of 100 B and 1 KB, and only ratios")
    add("--parts", type=_choices(PARTS), help="comma-separated: " + ",".join(PARTS))
    add("--sizes", type=_numbers, help="bytes of a value, such as 100,1024")
    add("--codecs", type=_choices(CODECS), help="comma-separated: " + ",".join(CODECS))
    add("--partitions", type=_numbers, help="partitions of a topic, such as 1,8; default: 2")
    add("--modes", type=_choices(MODES), help="comma-separated: " + ",".join(MODES))
    add("--contenders", type=_choices(tuple(READERS)), help="comma-separated: " + ",".join(READERS))
    add("--writers", type=_choices(tuple(WRITERS)), help="comma-separated: " + ",".join(WRITERS))
    add("--rounds", type=_positive, help="timed reads or writes of each contender in each case")
    add("--records", type=_positive, help="records of a topic, for every size")
    add("--formats", type=_choices(FORMATS), help="formats of typed topics: " + ",".join(FORMATS))
    add("--cores", type=_positive, default=2, help="Spark's cores; default: 2")
    add("--conf", type=_setting, action="append", default=[], help="a Spark setting, as name=value")
    add("--planning", type=_numbers, default=(1000, 5000), help="partitions in the part planning")
    add("--turns", type=_positive, default=3, help="runs of each connector in the part latency")
    add(
        "--seconds",
        type=float,
        default=20.0,
        help="seconds of a run in the part latency; default: 20",
    )
    add("--memory-gb", type=float, default=GIGABYTES, help="GiB in the part memory; default: 4")
    add("--name", help="name of the result files; default: the date and the commit")
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(_positive(part) for part in text.split(","))


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        msg = f"{text!r} is not a setting; it must be name=value"
        raise argparse.ArgumentTypeError(msg)
    return name, value


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        msg = f"{text!r} is not a positive number"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def _choices(choices: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    def parsed(text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        for name in names:
            if name not in choices:
                msg = f"{name!r} is not one of: {', '.join(choices)}"
                raise argparse.ArgumentTypeError(msg)
        return names

    return parsed
