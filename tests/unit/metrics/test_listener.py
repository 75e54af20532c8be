"""
The listener's handling of Spark's events, and the checks of its arguments.
"""

from __future__ import annotations

import pickle
import socket
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry
from tests.support.progress_events import progress

from pyspark_pykafka.audit.report import WHOLE_BATCH, Checksum, Verdict, report
from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.metrics.listener import MetricsListener

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def listener() -> Iterator[MetricsListener]:
    """
    Return a listener that exports nothing.
    """
    metrics_listener = MetricsListener()
    yield metrics_listener
    metrics_listener.close()


def send(listener: MetricsListener, *, error: str | None = None) -> None:
    """
    Send the events of a query with one micro-batch; with an error it ends.
    """
    listener.onQueryStarted(event(id="q", runId="run", name="flights"))
    listener.onQueryProgress(event(progress=event(json=progress({"t": {"0": 7}}))))
    listener.onQueryIdle(event(id="q"))
    if error is not None:
        listener.onQueryTerminated(
            event(id="q", runId="run", exception=error, errorClassOnException="C")
        )


def event(**fields: Any) -> Any:
    return SimpleNamespace(**fields)


def test_events_are_counted(listener: MetricsListener) -> None:
    """
    Start, micro-batch, idle trigger and end of a query are in the snapshot.
    """
    send(listener, error="org.X: no\nat org.X")

    (query,) = listener.snapshot().queries
    assert (query.name, query.starts, query.batches) == ("flights", 1, 1)
    assert (query.failures, query.last_error) == ({"C": 1}, "org.X: no")
    assert query.last_event_time is not None
    assert query.last_batch_time is not None
    assert query.last_event_time >= query.last_batch_time


def test_stopped_query_is_no_failure(listener: MetricsListener) -> None:
    """
    A query that ends without an error has no failure.
    """
    send(listener)
    listener.onQueryTerminated(event(id="q", runId="run", exception=None))

    (query,) = listener.snapshot().queries
    assert (query.is_running, query.failures) == (False, {})


def test_late_events_of_an_earlier_run(listener: MetricsListener) -> None:
    """
    The end of a run, reported after the next run has started, is a failure of a running query.
    """
    listener.onQueryStarted(event(id="q", runId="first", name="flights"))
    listener.onQueryStarted(event(id="q", runId="second", name="flights"))
    listener.onQueryTerminated(
        event(id="q", runId="first", exception="org.X: no", errorClassOnException="C")
    )

    (query,) = listener.snapshot().queries
    assert (query.is_running, query.starts, query.failures) == (True, 2, {"C": 1})


def test_audit_verdicts_are_counted(listener: MetricsListener) -> None:
    """
    A micro-batch counts with its most severe verdict, which may be that of a partition.
    """
    complete = {WHOLE_BATCH: Checksum(2, 5), "t-0": Checksum(1, 2)}
    at_sink = {WHOLE_BATCH: Checksum(2, 5), "t-0": Checksum(0, 0)}
    listener.record_audit(report("audited", 0, complete, [complete]))
    listener.record_audit(report("audited", 1, complete, [at_sink]))

    audits = listener.snapshot().audits
    assert audits == {("audited", "complete"): 1, ("audited", "missing"): 1}


def test_a_certain_loss_in_a_partition_is_not_counted_as_unknown(listener: MetricsListener) -> None:
    """
    A proven mismatch of a partition counts, even if retention leaves the verdict on the whole batch
    unknown.
    """
    entered = {
        WHOLE_BATCH: Checksum(150, 800),
        "t-0": Checksum(100, 500),
        "t-1": Checksum(100, 500),
    }
    at_sink = {WHOLE_BATCH: Checksum(199, 999), "t-0": Checksum(99, 499), "t-1": Checksum(100, 500)}
    at_most = {WHOLE_BATCH: 200, "t-0": 100, "t-1": 100}
    audit = report("audited", 0, entered, [at_sink], at_most)
    assert audit.whole_batch.verdict is Verdict.UNKNOWN

    listener.record_audit(audit)

    assert listener.snapshot().audits == {("audited", "missing"): 1}


def test_each_query_is_logged_at_intervals(caplog: pytest.LogCaptureFixture) -> None:
    """
    The first micro-batch is logged, and the next one only after `log_seconds`.
    """
    with caplog.at_level("INFO", "pyspark_pykafka"):
        send(quiet := MetricsListener(log_seconds=3600))
        send(quiet)
        assert len([r for r in caplog.records if "query flights" in r.message]) == 1
        send(MetricsListener(log_seconds=None))
        assert len([r for r in caplog.records if "query flights" in r.message]) == 1
        send(loud := MetricsListener(log_seconds=0))
        send(loud)
    assert len([r for r in caplog.records if "query flights" in r.message]) == 3


def test_registry_of_the_program() -> None:
    """
    A registry that the program serves itself gets the metrics.
    """
    registry = CollectorRegistry()
    send(MetricsListener(registry=registry))

    labels = {"query_id": "q", "query_name": "flights"}
    assert registry.get_sample_value("pykafka_batches_total", labels) == 1


def test_metrics_are_served_on_a_port_until_closed() -> None:
    """
    `port=0` chooses a free port on loopback; after `close` nothing listens there.
    """
    listener = MetricsListener(port=0)
    send(listener)

    with urlopen(f"http://127.0.0.1:{listener.port}/metrics", timeout=30) as response:
        assert b'pykafka_query_running{query_id="q",query_name="flights"} 1.0' in response.read()
    listener.close()
    assert listener.port is not None
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", listener.port)) != 0


def test_port_in_use() -> None:
    """
    A port that is in use is refused with its number.
    """
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        with pytest.raises(OptionsError, match=rf"port is {port}, .* use a free port"):
            MetricsListener(port=port)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"log_seconds": -1}, "log_seconds is -1; it must be: at least 0, or None"),
        ({"refresh_seconds": 0}, "refresh_seconds is 0; it must be: more than 0"),
        ({"max_partitions": 0}, "max_partitions is 0; it must be: at least 1"),
        ({"port": 70_000}, "port is 70000"),
        ({"options": {"subscribe": "t"}}, "kafka.bootstrap.servers is missing"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    """
    The error names a wrong argument and the accepted values.
    """
    with pytest.raises(OptionsError, match=message):
        MetricsListener(**arguments)


def test_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Without prometheus-client the error says what to install.
    """
    monkeypatch.setitem(sys.modules, "prometheus_client.core", None)
    monkeypatch.delitem(sys.modules, "pyspark_pykafka.metrics.prometheus", raising=False)

    with pytest.raises(OptionsError, match=r"install 'pyspark-pykafka\[metrics\]'"):
        MetricsListener(port=0)


def test_listener_stays_in_the_driver(listener: MetricsListener) -> None:
    """
    Pickling a listener, as for foreachBatch on Spark Connect, is an error: it stays in the driver.
    """
    with pytest.raises(OptionsError, match="cannot leave the driver"):
        pickle.dumps(listener)
