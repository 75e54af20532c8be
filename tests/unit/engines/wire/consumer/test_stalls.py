"""
Responses of stub brokers with which a read does not advance: none of them is taken for a gap in the
offsets.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest
from tests.support import fetching
from tests.support.proxy import Proxy
from tests.support.stub_brokers import Behaviour, FetchAnswer, StubCluster, record_batch

from pyspark_pykafka.engines.selection import bytes_per_offset, fetch
from pyspark_pykafka.errors import DataLossError, PykafkaError, StalledReadError
from pyspark_pykafka.offsets import OffsetRange, TopicPartition
from pyspark_pykafka.settings import KafkaSettings

FETCH, METADATA = 1, 3
END = 1000
ODD_FROM = 200
SHORT_MS = 1_000
#: A read that pauses between its retries sends fewer requests; without pauses it would send
#: thousands.
MAX_REQUESTS = 50


class Odd(Behaviour):
    """
    From offset 200 on the leader returns nothing useful, for a number of seconds.
    """

    odd = ""
    seconds = 0.0
    started_at = 0.0

    def _is_odd(self, offset: int) -> bool:
        if not self.odd or offset < ODD_FROM:
            return False
        self.started_at = self.started_at or time.monotonic()
        return time.monotonic() - self.started_at < self.seconds

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        if not self._is_odd(offset):
            self.throttled = False
            return super().fetch(node, topic, partition, offset)
        self.throttled = self.odd == "throttled"
        return {
            "empty": FetchAnswer(0, END),
            # The response has a throttle time instead of this answer.
            "throttled": FetchAnswer(0, END),
            "redirected": FetchAnswer(0, END, b"", 1 if node == 0 else -1),
            "out of range": FetchAnswer(1, -1),
            "unknown": FetchAnswer(3, -1),
            "short": FetchAnswer(0, ODD_FROM),
        }[self.odd]

    def throttle_ms(self, node: int, api_key: int) -> int:  # noqa: ARG002
        return 50 if api_key == FETCH and getattr(self, "throttled", False) else 0


def odd(kind: str, seconds: float = 600.0) -> Odd:
    return Odd(odd=kind, seconds=seconds, brokers=2)


def read(stubs: StubCluster, end: int = END, **changes: Any) -> list[tuple[int, bytes]]:
    """
    Return (offset, value) of each record.
    """
    changes = {"engine": "wire", "poll_timeout_ms": 20_000, **changes}
    kafka = KafkaSettings.of({"bootstrap.servers": stubs.bootstrap, "log_level": "0"})
    settings = fetching.settings(stubs.bootstrap, schema=fetching.VALUES, kafka=kafka, **changes)
    batches = fetch(OffsetRange(TopicPartition("t", 0), 0, end), settings)
    return [(row["offset"], row["value"]) for batch in batches for row in batch.to_pylist()]


def expected(end: int = END) -> list[tuple[int, bytes]]:
    return [(offset, b"v%d" % offset) for offset in range(end)]


@pytest.mark.parametrize("kind", ["empty", "throttled", "redirected", "out of range", "short"])
def test_temporary_stall_skips_no_record(kind: str) -> None:
    """
    Each record is read once the broker has recovered, and none is skipped, even if loss is allowed.
    """
    changes = {"end_retries": 100} if kind == "short" else {}
    with StubCluster(odd(kind, 0.7)) as stubs:
        assert read(stubs, fail_on_data_loss=False, **changes) == expected()


@pytest.mark.parametrize("kind", ["empty", "throttled", "out of range"])
def test_librdkafka_skips_no_record_in_a_stall(kind: str) -> None:
    """
    Librdkafka skips nothing either, and raises the same class of error.
    """
    with StubCluster(odd(kind, 0.5)) as stubs:
        assert read(stubs, engine="librdkafka", fail_on_data_loss=False) == expected()
        stubs.set(seconds=600.0)
        with pytest.raises(StalledReadError, match="arrived at offset 200 within 1000 ms"):
            read(stubs, engine="librdkafka", fail_on_data_loss=False, poll_timeout_ms=SHORT_MS)
        requests = sum(stubs.stats()["requests"].values())

    # How often librdkafka requests offsets is its own decision; a stub broker cannot delay it.
    assert kind != "out of range" or requests < 4 * MAX_REQUESTS


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("empty", "broker 0, which leads .* below its high watermark 1000 .*tiered storage"),
        ("redirected", "no record|names broker 1 as the replica"),
        ("out of range", r"OFFSET_OUT_OF_RANGE.* from 0 up to its high watermark 1000"),
    ],
)
def test_permanent_stall_is_a_retriable_error(kind: str, reason: str) -> None:
    """
    After pollTimeoutMs the read raises a retriable error; few requests are sent until then.
    """
    with StubCluster(odd(kind)) as stubs:
        started_at = time.monotonic()
        with pytest.raises(StalledReadError, match=f"(?s)t-0 at offset 200 .*{reason}") as caught:
            read(stubs, fail_on_data_loss=False, poll_timeout_ms=SHORT_MS)
        seconds = time.monotonic() - started_at
        requests = sum(stubs.stats()["requests"].values())

    assert caught.value.retriable
    assert "kafkaConsumer.pollTimeoutMs" in str(caught.value)
    assert seconds >= SHORT_MS / 1000 * 0.3
    assert requests < MAX_REQUESTS


@pytest.mark.parametrize("engine", ["wire", "librdkafka"])
def test_topic_unknown_for_poll_timeout_is_data_loss(engine: str) -> None:
    """
    A partition that brokers do not know counts as lost only after pollTimeoutMs.
    """
    with StubCluster(Gone(high_watermark=END)) as stubs:
        assert read(stubs, ODD_FROM, engine=engine) == expected(ODD_FROM)
        stubs.set(gone=True)
        started_at = time.monotonic()
        with pytest.raises(DataLossError, match="(does not|no longer) exist"):
            read(stubs, poll_timeout_ms=3_500, engine=engine)

    assert time.monotonic() - started_at > 2.2


class Large(Behaviour):
    """
    Records of 1 KB, as many as a Fetch request allows; ``advertised`` is the port of a proxy.
    """

    advertised = 0
    high_watermark = END

    def port(self, node: int) -> int:
        return self.advertised or super().port(node)

    def _on_1(self, node: int, request: Any) -> Any:
        self.batch_records = request.topics[0].partitions[0].partition_max_bytes // 1100
        return super()._on_1(node, request)

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:  # noqa: ARG002
        last = min(offset + self.batch_records, END)
        values = [b"v%d" % number + bytes(1000) for number in range(offset, last)]
        return FetchAnswer(0, END, record_batch(offset, values))


def test_slow_network_is_read_in_smaller_responses() -> None:
    """
    A response that does not arrive within the timeout of its request is requested again in smaller
    parts.
    """
    settings = {"socket.timeout.ms": "1000", "fetch.wait.max.ms": "10", "log_level": "0"}
    with StubCluster(Large()) as stubs, Proxy(("127.0.0.1", stubs.ports[0])) as proxy:
        stubs.set(advertised=proxy.port)
        kafka = KafkaSettings.of({"bootstrap.servers": proxy.address, **settings})
        # The whole range takes 1.4 seconds.
        proxy.rate = 700_000
        read_settings = fetching.settings(
            proxy.address, "wire", kafka=kafka, schema=fetching.VALUES, poll_timeout_ms=30_000
        )
        batches = list(fetch(OffsetRange(TopicPartition("t", 0), 0, END), read_settings))

    offsets = [offset for batch in batches for offset in batch["offset"].to_pylist()]
    assert offsets == list(range(END))


class Gone(Behaviour):
    """
    Knows its topic until ``gone`` is set.
    """

    gone = False

    def topics_of(self, node: int) -> dict[str, int]:
        return {} if self.gone else super().topics_of(node)

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        return FetchAnswer(3, -1) if self.gone else super().fetch(node, topic, partition, offset)


class ThenSilent(Gone):
    """
    Reports its topic as unknown a few times, and then responds to nothing.
    """

    reports, max_reports = 0, 1

    def topics_of(self, node: int) -> dict[str, int]:
        self.reports += self.gone
        return super().topics_of(node)

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        self.reports += self.gone
        return super().fetch(node, topic, partition, offset)

    def delay(self, node: int, api_key: int) -> float:  # noqa: ARG002
        return 3600.0 if self.reports >= self.max_reports else 0.0


@pytest.mark.parametrize("engine", ["wire", "librdkafka"])
@pytest.mark.parametrize("reports", [1, 3])
def test_reports_of_an_unknown_topic_before_silence_are_no_data_loss(
    engine: str, reports: int
) -> None:
    """
    Brokers that are silent until pollTimeoutMs has passed do not confirm that a topic is gone.
    """
    with StubCluster(ThenSilent(high_watermark=END, max_reports=reports)) as stubs:
        assert read(stubs, ODD_FROM, engine=engine) == expected(ODD_FROM)
        stubs.set(gone=True)
        with pytest.raises(PykafkaError) as caught:
            read(stubs, poll_timeout_ms=4_000, engine=engine)

    assert not isinstance(caught.value, DataLossError)
    assert caught.value.retriable


@pytest.mark.parametrize("engine", ["wire", "librdkafka"])
def test_topic_unknown_for_a_while_is_read_to_its_end(engine: str) -> None:
    """
    A topic that no broker knows for some seconds is then read to its end; no record is skipped.
    """
    with StubCluster(Forgetful(high_watermark=END, seconds=3.5)) as stubs:
        rows = read(stubs, engine=engine, fail_on_data_loss=False)

    assert rows == expected()


class Forgetful(Odd):
    """
    Does not know its topic for some seconds, in Fetch and in Metadata.
    """

    odd = "unknown"

    def topics_of(self, node: int) -> dict[str, int]:
        return {} if self.started_at and self._is_odd(ODD_FROM) else super().topics_of(node)


class Elsewhere(Behaviour):
    """
    Answers some fetches with the records of another partition.
    """

    remaining = 3

    def _on_1(self, node: int, request: Any) -> Any:
        response = super()._on_1(node, request)
        if self.remaining:
            self.remaining -= 1
            partition = response.responses[0].partitions[0]
            partition.partition_index = 77
            partition.records = record_batch(0, [b"of another"] * 100)
        return response


def test_records_of_another_partition_are_rejected() -> None:
    """
    A response for a partition that was not requested closes the connection, and the fetch is
    retried.
    """
    with StubCluster(Elsewhere(high_watermark=END)) as stubs:
        assert read(stubs) == expected()


class Open(Behaviour):
    """
    A transaction is open from offset 200 on; the log continues after it.
    """

    def _on_1(self, node: int, request: Any) -> Any:
        response = super()._on_1(node, request)
        for topic in response.responses:
            for partition in topic.partitions:
                partition.last_stable_offset = ODD_FROM
        return response

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        if offset >= ODD_FROM:
            return FetchAnswer(0, END)
        return super().fetch(node, topic, partition, offset)


@pytest.mark.parametrize("engine", ["wire", "librdkafka"])
def test_records_after_an_open_transaction_are_not_lost(engine: str) -> None:
    """
    Under read_committed a read that reaches an open transaction stalls, and skips no record even if
    data loss is allowed.
    """
    with (
        StubCluster(Open(high_watermark=END)) as stubs,
        pytest.raises(StalledReadError, match="transaction has been open since offset 200"),
    ):
        read(
            stubs,
            engine=engine,
            isolation_level="read_committed",
            fail_on_data_loss=False,
            poll_timeout_ms=SHORT_MS,
            end_retries=0,
        )


class Holes(Behaviour):
    """
    A compacted log that has no records at the offsets from 200 to 699, and from 900 to 1499.
    """

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        if ODD_FROM <= offset < 700:
            return FetchAnswer(
                0, 2000, record_batch(700, [b"v%d" % number for number in range(700, 900)])
            )
        if 900 <= offset <= 1500:
            return FetchAnswer(0, 2000, record_batch(1500, [b"beyond"]))
        return super().fetch(node, topic, partition, offset)


@pytest.mark.parametrize("end", [END, 500])
def test_hole_ends_at_the_next_record_batch(end: int) -> None:
    """
    A record batch that begins after the requested offset shows that there are no records before it,
    even if the range ends before the batch.
    """
    with StubCluster(Holes(high_watermark=2000)) as stubs:
        rows = read(stubs, end)
        fetches = stubs.stats()["requests"][FETCH]

    assert rows == [row for row in expected(min(end, 900)) if not ODD_FROM <= row[0] < 700]
    # An offset whose response proves nothing is fetched again.
    assert fetches <= 4


def test_long_wait_is_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    After a long time without progress one warning names the missing record and the reason.
    """
    monkeypatch.setattr(
        "pyspark_pykafka.engines.wire.consumer.retrying_fetcher._LOG_AFTER_SECONDS", 0.2
    )
    with StubCluster(odd("empty", 1.0)) as stubs:
        assert read(stubs) == expected()

    lines = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert [line[:60] for line in lines] == [
        "still waiting for a record of t-0 at offset 200: broker 0, wh"[:60]
    ]


def test_a_read_reuses_its_response_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The responses of a long read share memory: no view of a response outlives the decoding of that
    response.
    """
    from pyspark_pykafka.engines.wire.protocol.frames import FrameBuffer

    addresses: list[int] = []
    reserve = FrameBuffer.reserve

    def noting(buffer: FrameBuffer, size: int) -> memoryview:
        view = reserve(buffer, size)
        addresses.append(id(view.obj))
        return view

    monkeypatch.setattr(FrameBuffer, "reserve", noting)
    with StubCluster(Behaviour(high_watermark=5000, batch_records=1000)) as stubs:
        assert len(read(stubs, 4000)) == 4000

    # A response has 1,000 records at most, and the first response is the smallest: the second may
    # need new memory.
    assert len(addresses) >= 4
    assert len(set(addresses)) <= 2


class Throttling(Behaviour):
    """
    Throttles the fetch at offset 200, once or always.
    """

    milliseconds = 0
    remaining = 1
    throttles = False

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        self.throttles = offset >= ODD_FROM and self.remaining > 0
        self.remaining -= self.throttles
        return super().fetch(node, topic, partition, offset)

    def throttle_ms(self, node: int, api_key: int) -> int:  # noqa: ARG002
        return self.milliseconds if api_key == FETCH and self.throttles else 0


@pytest.mark.parametrize("with_records", [True, False])
def test_throttle_longer_than_poll_timeout_is_no_stall(with_records: bool) -> None:
    """
    The read waits for a broker's throttle time, which does not count as a stall, and then goes on
    over the same connection.
    """
    behaviour = Throttling(milliseconds=2_500, throttles_with_records=with_records)
    with StubCluster(behaviour) as stubs:
        read(stubs, ODD_FROM)
        warm = stubs.stats()
        read(stubs, ODD_FROM)
        before = stubs.stats()
        started_at = time.monotonic()
        assert read(stubs, poll_timeout_ms=SHORT_MS) == expected()
        seconds = time.monotonic() - started_at
        after = stubs.stats()

    assert seconds >= 2.4
    assert after["connections"] == before["connections"]
    # As many metadata requests as in a read without a throttle: a read compares topic ids
    # (invariant R15).
    lookups = before["requests"][METADATA] - warm["requests"][METADATA]
    assert after["requests"][METADATA] - before["requests"][METADATA] == lookups


def test_a_throttled_sample_of_record_sizes_waits() -> None:
    """
    A sample that is throttled for a short time is taken afterwards, and does not count as a log
    without records.
    """
    with StubCluster(Throttling(milliseconds=300)) as stubs:
        assert sample(stubs, max_throttle_seconds=2.0)[TopicPartition("t", 0)] > 10


def test_a_sample_of_record_sizes_waits_no_longer_than_allowed() -> None:
    """
    A sample that is throttled for longer than ``max_throttle_seconds`` fails at once.
    """
    with (
        StubCluster(Throttling(milliseconds=60_000)) as stubs,
        pytest.raises(StalledReadError, match="more than the limit of 2 s"),
    ):
        sample(stubs, max_throttle_seconds=2.0)


def sample(stubs: StubCluster, **changes: Any) -> dict[TopicPartition, float]:
    """
    Return the bytes per offset from offset 200 on.
    """
    kafka = KafkaSettings.of({"bootstrap.servers": stubs.bootstrap, "log_level": "0"})
    settings = fetching.settings(stubs.bootstrap, "wire", kafka=kafka, **changes)
    return bytes_per_offset({TopicPartition("t", 0): ODD_FROM}, settings)


def test_too_long_throttle_is_an_error() -> None:
    """
    A throttle time beyond the limit raises a retriable error at once, which names the offset, the
    throttle time and the broker.
    """
    with StubCluster(Throttling(milliseconds=3_600_000)) as stubs:
        message = r"t-0 at offset 200: broker 0 throttles this client for 3[56]\d{5} ms \(quota\)"
        with pytest.raises(StalledReadError, match=message) as caught:
            read(stubs, fail_on_data_loss=False, poll_timeout_ms=SHORT_MS)

    assert caught.value.retriable


def test_repeated_throttles_are_limited() -> None:
    """
    Without a record in between, the sum of throttle times is limited.
    """
    behaviour = Throttling(milliseconds=500, remaining=10**9)
    with StubCluster(behaviour) as stubs:
        started_at = time.monotonic()
        with pytest.raises(StalledReadError, match="for 500 ms .*, a total of 2 s since"):
            read(stubs, fail_on_data_loss=False, max_throttle_seconds=1.8)
        seconds = time.monotonic() - started_at
        requests = sum(stubs.stats()["requests"].values())

    assert seconds >= 1.5
    assert requests < MAX_REQUESTS
