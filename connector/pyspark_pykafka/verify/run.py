"""
Carries out a run: creates topics, starts a writer, a query and a reader, and compares input and
output.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from pyspark_pykafka.errors import error_text
from pyspark_pykafka.options import parse_sink
from pyspark_pykafka.retry import NEVER, Deadline
from pyspark_pykafka.settings.librdkafka_config import (
    admin_config,
    consumer_config,
    producer_config,
)
from pyspark_pykafka.verify import topics
from pyspark_pykafka.verify.checker import Verdict, check_source
from pyspark_pykafka.verify.errors import CannotRunError
from pyspark_pykafka.verify.pace import Arrivals, Pace
from pyspark_pykafka.verify.query import CopyQuery, local_session, summary
from pyspark_pykafka.verify.reader import Tail, read_all
from pyspark_pykafka.verify.report import Report
from pyspark_pykafka.verify.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_pykafka.failures.restarts import QueryFailure
    from pyspark_pykafka.settings import KafkaSettings
    from pyspark_pykafka.verify.nemesis import Nemesis
    from pyspark_pykafka.verify.records import ReadRow

EXACTLY_ONCE = "exactly-once"

_SAMPLE_SECONDS = 0.2
_ANNOUNCE_SECONDS = 5.0
_START_SECONDS = 120.0
_READ_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class RunArguments:
    """
    The arguments of a run; ``options`` are the user's ``kafka.*`` options, and ``rate`` is in
    records per second.
    """

    options: dict[str, str]
    topic_prefix: str
    partitions: int
    replication_factor: int
    seconds: float
    rate: float
    guarantee: str
    deadline_seconds: float
    keep: bool

    @property
    def kafka(self) -> KafkaSettings:
        """
        The settings of all clients of the run; librdkafka's log is off unless the user wants it.
        """
        return parse_sink({"kafka.log_level": "0", **self.options}, streaming=False).kafka


def verify(
    arguments: RunArguments, on_event: Callable[[str], None], nemesis: Nemesis | None = None
) -> Report:
    """
    Carry out a run and return the report; ``on_event`` is called with a line of text for each
    event.

    Raises :class:`CannotRunError`, or another :class:`PykafkaError`, if the run is impossible.
    """
    names = topics.Names.of(arguments.topic_prefix)
    topics.check_reachable(arguments.kafka)
    servers = arguments.options["kafka.bootstrap.servers"]
    with _cleaning_up(on_event) as cleanup:
        if not arguments.keep:
            # The brokers of a nemesis end with the run, and their topics with them.
            cleanup.add(
                "delete the topics",
                lambda: topics.delete_topics(arguments.kafka, names),
                leaves=None if nemesis else _topics_left(names, servers),
            )
        topics.create_topics(
            arguments.kafka, names, arguments.partitions, arguments.replication_factor
        )
        checkpoint = tempfile.mkdtemp(prefix="pykafka-verify-")
        cleanup.add(
            "delete the checkpoint",
            lambda: shutil.rmtree(checkpoint),
            leaves=f"the folder {checkpoint}; delete it",
        )
        on_event(
            f"writing to {names.source} for {arguments.seconds:g} s, copying to {names.output}"
        )
        parts = _parts(arguments, names, checkpoint, on_event, cleanup)
        run = _Run(arguments, names, on_event, nemesis, parts)
        return run.execute(cleanup)


def _topics_left(names: topics.Names, servers: str) -> str:
    commands = "".join(
        f"\n  pykafka topic delete --bootstrap-server {servers} {topic} --execute"
        for topic in names.topics
    )
    return f"topics, if they exist; delete them with{commands}"


@contextmanager
def _cleaning_up(on_event: Callable[[str], None]) -> Iterator[_Cleanup]:
    """
    Run the steps of a cleanup at the end of the block. If a step fails or is interrupted, report
    what it leaves.
    """
    left: dict[str, str] = {}
    try:
        with ExitStack() as stack:
            yield _Cleanup(stack, on_event, left)
    finally:
        for resources in left.values():
            on_event(f"the cleanup leaves {resources}")


@dataclass
class _Cleanup:
    """
    The steps of a cleanup, which run in reverse order. A failed step is reported; the others still
    run.

    An interrupt ends only the running step, whose resources remain in ``left``. The other steps
    still run, since closing a terminal may send two signals at once.
    """

    stack: ExitStack
    on_event: Callable[[str], None]
    left: dict[str, str] = field(default_factory=dict)

    def add(self, action: str, step: Callable[[], object], *, leaves: str | None = None) -> None:
        self.stack.callback(self._attempt, action, step)
        if leaves is not None:
            self.left[action] = leaves

    def _attempt(self, action: str, step: Callable[[], object]) -> None:
        try:
            step()
        except Exception as error:  # noqa: BLE001 (whatever it is, the verdict holds)
            self.on_event(f"could not {action}: {summary(error)}")
        else:
            self.left.pop(action, None)


@dataclass(frozen=True, slots=True)
class _Parts:
    writer: Writer
    query: CopyQuery
    tail: Tail
    ends: topics.EndOffsets


def _parts(
    arguments: RunArguments,
    names: topics.Names,
    checkpoint: str,
    on_event: Callable[[str], None],
    cleanup: _Cleanup,
) -> _Parts:
    kafka, partitions = arguments.kafka, arguments.partitions
    session, is_new = local_session()
    if is_new:
        cleanup.add("stop Spark", session.stop)
    source = {
        **arguments.options,
        "subscribe": names.source,
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
    }
    sink = {
        **arguments.options,
        "topic": names.output,
        "deliveryGuarantee": arguments.guarantee,
        "checkpointLocation": checkpoint,
    }
    if arguments.guarantee == EXACTLY_ONCE:
        sink["transactionalIdPrefix"] = names.transactional_id_prefix
        cleanup.add(
            "abort open transactions",
            lambda: topics.abort_open(kafka, names),
            leaves="open transactions; the brokers abort them after kafka.transaction.timeout.ms",
        )

    def report_failure(failure: QueryFailure) -> None:
        on_event(f"the query failed ({failure.number} in a row): {summary(failure.error)}")

    query = CopyQuery(session, source, sink, report_failure)
    tail = Tail(_reader_config(kafka), names.output, names.source, partitions)
    writer = Writer(producer_config(kafka), names.run, names.source, partitions, arguments.rate)
    cleanup.add("stop the query", query.stop)
    cleanup.add("stop the reader", tail.stop)
    cleanup.add("stop the writer", writer.stop)
    return _Parts(writer, query, tail, topics.EndOffsets(admin_config(kafka), partitions))


def _raise_if_failed(action: str, error: Exception | None) -> None:
    if error is not None:
        msg = f"{action} failed: {error_text(error)}"
        raise CannotRunError(msg) from error


def _reader_config(kafka: KafkaSettings) -> dict[str, Any]:
    return consumer_config(kafka, group_id="pykafka-verify")


@dataclass
class _Run:
    arguments: RunArguments
    names: topics.Names
    on_event: Callable[[str], None]
    nemesis: Nemesis | None
    parts: _Parts
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    pace: Pace = field(init=False)
    arrivals: Arrivals = field(init=False)

    def __post_init__(self) -> None:
        self.pace = Pace(self.now)
        self.arrivals = Arrivals(self.parts.writer.written, self.parts.tail.seen)

    def execute(self, cleanup: _Cleanup) -> Report:
        parts = self.parts
        parts.query.start()
        self._until(lambda: parts.query.has_started, _START_SECONDS, "Spark starts")
        if not parts.query.has_started:
            _raise_if_failed(
                "starting the query", parts.query.error or TimeoutError(_START_SECONDS)
            )
        parts.tail.start()
        parts.writer.start()
        # The first record takes longer, since Python workers start.
        is_running = self._until(
            lambda: bool(parts.tail.seen),
            _START_SECONDS,
            "the first record arrives",
        )
        if is_running:
            self._write_under_faults(cleanup)
        parts.writer.stop()
        self._until(
            lambda: not self._unfinished(),
            self.arguments.deadline_seconds,
            "the last records arrive",
        )
        unfinished = self._unfinished()
        parts.query.stop()
        parts.tail.stop()
        _raise_if_failed("writing with a plain producer", parts.writer.error)
        _raise_if_failed("reading with a plain consumer", parts.tail.error)
        return self._report(unfinished)

    def _write_under_faults(self, cleanup: _Cleanup) -> None:
        if self.nemesis is not None:
            cleanup.add("heal the brokers", self.nemesis.stop)
            self.nemesis.start()
        self._until(lambda: False, self.arguments.seconds, None)
        if self.nemesis is not None:
            self.nemesis.stop()
            _raise_if_failed("healing the brokers", self.nemesis.error)

    def _until(self, is_done: Callable[[], bool], seconds: float, condition: str | None) -> bool:
        """
        Sample the pace until ``is_done`` returns True; return False if the time is up first, or if
        the writer, the query or the reader has ended. ``condition`` is the text that announces a
        longer wait.
        """
        deadline = Deadline.after(seconds, self.now, self.sleep)
        announce_at = Deadline.after(_ANNOUNCE_SECONDS, self.now) if condition else NEVER
        while not is_done():
            if deadline.expired or not self._all_running():
                return False
            if announce_at.expired:
                self.on_event(f"waiting until {condition}, for {deadline.remaining():.0f} s more")
                announce_at = NEVER
            self.arrivals.update()
            self.pace.sample(self.arrivals)
            deadline.pause(_SAMPLE_SECONDS)
        return True

    def _all_running(self) -> bool:
        errors = (self.parts.writer.error, self.parts.tail.error)
        return self.parts.query.is_running and errors == (None, None)

    def _unfinished(self) -> set[int]:
        """
        Return the partitions that the query has not finished and that lack records.

        A partition lacks records if the consumer has not seen all of them. The query has finished
        a partition once its micro-batches have reached the end of it. A row is written to the
        partition of its record.
        """
        self.arrivals.update()
        waiting = {number for number, records in self.arrivals.waiting.items() if records}
        ends = self.parts.query.end_offsets(self.names.source)
        if not waiting & ends.keys():
            return waiting
        source_ends = self.parts.ends.of(self.names.source)
        read = {n for n in waiting & ends.keys() & source_ends.keys() if ends[n] >= source_ends[n]}
        if read:
            # Records missing now are lost, unless a commit has not reached a partition yet.
            read &= self.parts.ends.of(self.names.output).keys()
        return waiting - read

    def _rows(self) -> list[ReadRow]:
        if self.arguments.guarantee == EXACTLY_ONCE:
            # An open transaction hides the records after it.
            topics.abort_open(self.arguments.kafka, self.names)
        try:
            return read_all(
                _reader_config(self.arguments.kafka),
                *(self.names.output, self.names.source, self.arguments.partitions),
                Deadline.after(_READ_SECONDS),
            )
        except KafkaException as error:
            msg = f"reading {self.names.output} with a plain consumer failed: {error}"
            raise CannotRunError(msg) from error

    def _report(self, unfinished: set[int]) -> Report:
        written, query, rows = self.parts.writer.written, self.parts.query, self._rows()
        verdict = Verdict()
        check_source(
            verdict,
            written.records,
            [[row] for row in rows],
            exactly_once=self.arguments.guarantee == EXACTLY_ONCE,
            unfinished={(self.names.source, number) for number in unfinished},
        )
        return Report(
            guarantee=self.arguments.guarantee,
            written=written.states.total(),
            acknowledged=written.committed,
            aborted=written.aborted,
            unknown=written.unknown,
            read=len(rows),
            verdict=verdict,
            restarts=query.restarts,
            longest_pause=self.pace.longest_pause,
            max_lag=self.pace.max_lag,
            strikes=0 if self.nemesis is None else self.nemesis.strikes,
            error=None if query.error is None else summary(query.error),
            kept=self.names.topics if self.arguments.keep else (),
        )
