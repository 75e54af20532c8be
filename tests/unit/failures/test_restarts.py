"""
Restarts of queries: which errors are retried, after which pause, and how often.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.failures.restarts import QueryFailure, RestartPolicy, is_fatal, supervise

TRANSIENT = "Traceback ... pyspark_pykafka.errors.BrokerUnavailableError: no broker answers"
FATAL = "Traceback ... pyspark_pykafka.errors.AuthenticationError: refused"
QUICK = RestartPolicy(initial_delay=0.001, max_delay=0.01, attempts=4)


@dataclass
class Query:
    """
    A query that ends with an error, by itself (None), or when it is stopped (...).
    """

    end: Any
    rows: tuple[int, ...] = ()
    stopped: bool = False

    @property
    def recentProgress(self) -> list[dict[str, int]]:  # noqa: N802 (Spark's name)
        return [{"numInputRows": rows} for rows in self.rows]

    def awaitTermination(self, timeout: int | None = None) -> bool:  # noqa: N802 (likewise)
        assert timeout is not None
        if isinstance(self.end, str):
            raise RuntimeError(self.end)  # noqa: TRY004 (a stand-in for Spark's error)
        if self.end is ...:
            time.sleep(0.01)
        return self.stopped or self.end is None

    def stop(self) -> None:
        self.stopped = True


@dataclass
class Starts:
    """
    Starts one query after the other; an exception is a query that cannot be started.
    """

    queries: list[Query | Exception]
    started: list[Query] = field(default_factory=list)
    failures: list[QueryFailure] = field(default_factory=list)

    def __call__(self) -> Query:
        query = self.queries.pop(0)
        if isinstance(query, Exception):
            raise query
        self.started.append(query)
        return query

    def run(self, policy: RestartPolicy = QUICK) -> None:
        supervise(self, policy, self.failures.append)


def test_transient_errors_restart_the_query() -> None:
    """
    A failing query is restarted until it ends by itself; each failure is reported.
    """
    starts = Starts([Query(TRANSIENT), RuntimeError("the session is busy"), Query(None)])

    starts.run()

    assert [(f.number, f.fatal, str(f.error)) for f in starts.failures] == [
        (1, False, TRANSIENT),
        (2, False, "the session is busy"),
    ]


def test_fatal_errors_are_raised_at_once() -> None:
    """
    A fatal error is reported as such and raised without a restart.
    """
    starts = Starts([Query(FATAL), Query(None)])

    with pytest.raises(RuntimeError, match="AuthenticationError"):
        starts.run()
    assert [(f.fatal, f.pause_seconds) for f in starts.failures] == [(True, None)]


def test_consecutive_failures_are_bounded() -> None:
    """
    After the maximum of consecutive failures the error is raised; a finished batch resets the
    count.
    """
    no_progress, with_rows, without_rows = (
        Query(TRANSIENT),
        Query(TRANSIENT, rows=(5,)),
        Query(TRANSIENT, rows=(0,)),
    )
    starts = Starts([*[no_progress] * 3, with_rows, *[without_rows] * 9])

    with pytest.raises(RuntimeError, match="BrokerUnavailableError"):
        starts.run()
    assert [f.number for f in starts.failures] == [1, 2, 3, 1, 2, 3, 4]


def test_a_batch_with_rows_counts_after_batches_without_rows() -> None:
    """
    A batch without rows, as a watermark causes after each batch, does not hide the batch before it.
    """
    starts = Starts([*[Query(TRANSIENT, rows=(5, 0))] * 9, Query(None)])

    starts.run()

    assert {f.number for f in starts.failures} == {1}


def test_pauses_grow() -> None:
    """
    Each pause grows by the multiplier up to the maximum, plus jitter.
    """
    policy = RestartPolicy(initial_delay=0.001, multiplier=3, max_delay=0.005, attempts=4)
    starts = Starts([*[Query(TRANSIENT)] * 3, Query(None)])

    starts.run(policy)

    pauses = [f.pause_seconds or 0 for f in starts.failures]
    for pause, minimum in zip(pauses, (0.001, 0.003, 0.005), strict=True):
        assert minimum <= pause <= minimum * 1.2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("end", [..., TRANSIENT], ids=["running", "waiting"])
def test_signals_stop_the_query(number: int, end: Any) -> None:
    """
    A signal stops a running query, or the pause before a restart; the former handlers are restored.
    """
    handler = signal.getsignal(number)
    starts = Starts([Query(end), Query(None)])
    policy = RestartPolicy(initial_delay=60)
    kill = threading.Timer(0.2, os.kill, (os.getpid(), number))
    kill.start()

    starts.run(policy)

    kill.join()
    assert [q.stopped for q in starts.started] == [end is ...]
    assert signal.getsignal(number) is handler


def test_supervise_works_on_other_threads() -> None:
    """
    Python handles signals on the main thread only; on other threads supervise works without them.
    """
    starts = Starts([Query(TRANSIENT), Query(None)])
    thread = threading.Thread(target=starts.run)
    thread.start()
    thread.join(10)

    assert len(starts.started) == 2


@pytest.mark.parametrize(
    ("error", "fatal"),
    [
        (TRANSIENT, False),
        (FATAL, True),
        ("pyspark_pykafka.errors.DataLossError: [KAFKA_DATA_LOSS.X]", True),
        ("pyspark_pykafka.errors.OptionsError: Spark options", True),
        ("pyspark_pykafka.errors.UnknownTopicError: no topic", False),
        ("pyspark_pykafka.errors.MissingTopicError: still no topic", False),
        ("pyspark_pykafka.errors.NoSuchError: ?", False),
        ("java.lang.OutOfMemoryError", False),
        ("A call failed.\n: pyspark_pykafka.errors.TlsError: certificate", True),
        ("The value 'pyspark_pykafka.errors.DataLossError: x' cannot be cast", False),
    ],
)
def test_fatal_errors_are_recognised(error: str, *, fatal: bool) -> None:
    """
    The class of the connector's errors decides; unknown errors are not fatal.
    """
    assert is_fatal(RuntimeError(error)) is fatal


def test_invalid_restart_policies() -> None:
    """
    One error names every invalid value.
    """
    with pytest.raises(OptionsError) as caught:
        RestartPolicy(initial_delay=0, multiplier=0.5, max_delay=-1, attempts=0)

    assert [m.split(" ", 1)[0] for m in caught.value.mistakes] == [
        "initial_delay",
        "multiplier",
        "max_delay",
        "attempts",
    ]
