"""
Logs, producers and readers of the simulated cluster.
"""

from __future__ import annotations

import pytest
from tests.simulation.kafka.codes import Code
from tests.support.kafka_requests import EARLIEST, LATEST, batch, fetched
from tests.support.record_batches import CODECS
from tests.support.simulated_kafka import SimulatedKafka


@pytest.fixture
def kafka() -> SimulatedKafka:
    """
    Three brokers with a topic ``t`` of one partition and three replicas.
    """
    kafka = SimulatedKafka()
    kafka.cluster.create_topic("t", 1)
    return kafka


def values(kafka: SimulatedKafka, state: str = "committed") -> list[bytes | None]:
    return [r.value for r in kafka.cluster.records("t", 0) if r.state == state]


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_is_kept_as_it_was_sent(kafka: SimulatedKafka, codec: int) -> None:
    """
    A log keeps a batch's bytes except its base offset and leader epoch, with any compression.
    """
    kafka.produce(b"before")
    assert kafka.produce(b"a", b"b", codec=codec).base_offset == 1
    sent = batch(b"a", b"b", codec=codec, now=kafka.time.now())
    fetched = bytes(kafka.fetch(1).records)
    assert len(fetched) == len(sent)
    assert int.from_bytes(fetched[:8], "big") == 1
    assert values(kafka) == [b"before", b"a", b"b"]


def test_a_damaged_batch_is_refused(kafka: SimulatedKafka) -> None:
    """
    A batch with a wrong checksum is refused, and nothing is appended.
    """
    sent = bytearray(batch(b"a"))
    sent[-1] ^= 1
    assert kafka.produce(data=bytes(sent)).error_code == Code.CORRUPT_MESSAGE
    assert kafka.cluster.log_end("t", 0) == 0


def test_two_batches_in_a_request_are_refused(kafka: SimulatedKafka) -> None:
    """
    A Produce request with two batches for a partition is rejected.
    """
    assert kafka.produce(data=batch(b"a") + batch(b"b")).error_code == Code.INVALID_RECORD


def test_a_batch_may_be_too_large() -> None:
    """
    A batch above max.message.bytes is refused.
    """
    kafka = SimulatedKafka(max_message_bytes=100)
    kafka.cluster.create_topic("t", 1)
    assert kafka.produce(b"x" * 100).error_code == Code.MESSAGE_TOO_LARGE


def test_a_timestamp_may_be_too_far_ahead(kafka: SimulatedKafka) -> None:
    """
    A record with a timestamp two hours ahead is refused.
    """
    data = batch(b"a", now=kafka.time.now() + 7200)
    assert kafka.produce(data=data).error_code == Code.INVALID_TIMESTAMP


def test_an_unknown_topic_is_refused(kafka: SimulatedKafka) -> None:
    """
    A Produce request for an unknown topic is rejected: brokers do not create it.
    """
    kafka.cluster.delete_topic("t")
    assert kafka.produce(b"a", node=1).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_a_duplicate_gets_the_first_offset(kafka: SimulatedKafka) -> None:
    """
    A batch that is sent again is acknowledged with its first offset, and not appended again.
    """
    first = kafka.produce(b"a", b"b", producer_id=5)
    assert kafka.produce(b"c", producer_id=5, sequence=2).base_offset == 2
    duplicate = kafka.produce(b"a", b"b", producer_id=5)
    assert (duplicate.error_code, duplicate.base_offset) == (Code.NONE, first.base_offset)
    assert values(kafka) == [b"a", b"b", b"c"]


def test_only_five_batches_are_remembered(kafka: SimulatedKafka) -> None:
    """
    A duplicate of an older batch than the last five is out of order.
    """
    for sequence in range(6):
        assert kafka.produce(b"a", producer_id=5, sequence=sequence).error_code == Code.NONE
    assert kafka.produce(b"a", producer_id=5).error_code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_out_of_order(kafka: SimulatedKafka) -> None:
    """
    A producer's batch has to follow the producer's last batch, and the first batch of an epoch
    starts at sequence number 0.
    """
    kafka.produce(b"a", producer_id=5)
    wrong = Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert kafka.produce(b"b", producer_id=5, sequence=2).error_code == wrong
    assert kafka.produce(b"b", producer_id=5, epoch=1, sequence=1).error_code == wrong
    assert kafka.produce(b"b", producer_id=5, epoch=1).error_code == Code.NONE


def test_an_old_epoch_is_refused(kafka: SimulatedKafka) -> None:
    """
    A batch with an older epoch than the producer's last one is rejected.
    """
    kafka.produce(b"a", producer_id=5, epoch=1)
    assert kafka.produce(b"b", producer_id=5).error_code == Code.INVALID_PRODUCER_EPOCH


def test_a_reader_starts_with_the_batch_of_its_offset(kafka: SimulatedKafka) -> None:
    """
    A Fetch response starts with the whole batch that holds the offset.
    """
    kafka.produce(b"a", b"b")
    kafka.produce(b"c")
    assert kafka.fetch(1).records == kafka.fetch(0).records
    assert len(kafka.fetch(2).records) < len(kafka.fetch(1).records)


def test_the_first_batch_is_whole_and_the_last_is_cut(kafka: SimulatedKafka) -> None:
    """
    A response exceeds its limit by the first batch only; a later batch ends at the limit.
    """
    sizes = []
    for value in (b"a" * 100, b"b" * 100):
        kafka.produce(value)
        sizes.append(len(batch(value)))
    assert len(kafka.fetch(0, max_bytes=10).records) == sizes[0]
    assert len(kafka.fetch(0, max_bytes=sizes[0] + 7).records) == sizes[0] + 7


def test_an_offset_may_be_out_of_range(kafka: SimulatedKafka) -> None:
    """
    Offsets after the end, and before the start of the log, are out of range.
    """
    for value in (b"a", b"b"):
        kafka.produce(value)
    assert kafka.fetch(2).error_code == Code.NONE
    assert kafka.fetch(3).error_code == Code.OFFSET_OUT_OF_RANGE
    kafka.cluster.delete_records("t", 0, 1)
    assert kafka.fetch(0).error_code == Code.OFFSET_OUT_OF_RANGE
    assert kafka.fetch(1).log_start_offset == 1


def test_a_reader_waits_for_records(kafka: SimulatedKafka) -> None:
    """
    A Fetch request at the end is answered with the next record, or after its waiting time.
    """
    waiting = kafka.send_fetch(0, max_wait_ms=500)
    kafka.time.run(0.4)
    assert not waiting.done
    kafka.produce(b"a")
    assert fetched(kafka.response(waiting)).records
    waiting = kafka.send_fetch(1, max_wait_ms=500)
    kafka.time.run(0.6)
    assert fetched(waiting.response).records == b""


def test_a_reader_waits_for_enough_bytes(kafka: SimulatedKafka) -> None:
    """
    A Fetch request waits until the log has the minimum number of bytes.
    """
    waiting = kafka.send_fetch(0, min_bytes=len(batch(b"a")) + 1, max_wait_ms=5000)
    kafka.produce(b"a")
    kafka.time.run(0.1)
    assert not waiting.done
    kafka.produce(b"b")
    assert waiting.done


def test_topic_ids_are_checked(kafka: SimulatedKafka) -> None:
    """
    A Fetch request with an id that no topic has gets UNKNOWN_TOPIC_ID.
    """
    wrong = "00000000-0000-0000-0000-000000000001"
    answer = kafka.fetch(version=13, topic_id=wrong)
    assert answer.error_code == Code.UNKNOWN_TOPIC_ID


def test_offsets_are_found_by_time(kafka: SimulatedKafka) -> None:
    """
    ListOffsets finds the ends of the log, and the first record that is not older than a time.
    """
    times = []
    for value in (b"a", b"b"):
        times.append(int(kafka.time.now() * 1000))
        kafka.produce(value)
        kafka.time.run(10)
    assert kafka.list_offset(LATEST).offset == 2
    assert kafka.list_offset(EARLIEST).offset == 0
    assert kafka.list_offset(times[0] + 1).offset == 1
    listed = kafka.list_offset(times[1] + 1)
    assert (listed.error_code, listed.offset) == (Code.NONE, -1)


def test_compaction_keeps_the_last_record_of_a_key() -> None:
    """
    Compaction keeps the last record of each key at its offset; a record without a key is rejected.
    """
    kafka = SimulatedKafka()
    kafka.cluster.create_topic("t", 1, compacted=True)
    kafka.produce(b"1", b"2", keys=(b"k", b"l"))
    kafka.produce(b"3", keys=(b"k",))
    kafka.produce(b"4", keys=(b"l",))
    kafka.cluster.compact("t", 0)
    records = [(r.offset, r.value) for r in kafka.cluster.records("t", 0)]
    assert records == [(2, b"3"), (3, b"4")]
    assert kafka.fetch(0).error_code == Code.NONE
    assert kafka.produce(b"5").error_code == Code.INVALID_RECORD


def test_tiered_reads_may_be_empty(kafka: SimulatedKafka) -> None:
    """
    A read of tiered storage may return nothing although the high watermark is higher.
    """
    kafka.produce(b"a")
    kafka.cluster.tiered("t", 1.0)
    answer = kafka.fetch(0)
    assert (answer.error_code, answer.records, answer.high_watermark) == (Code.NONE, b"", 1)


def test_responses_of_a_throttled_broker_carry_the_time(kafka: SimulatedKafka) -> None:
    """
    A throttled broker's responses have a throttle time; those to fetches have no topics (KIP-219).
    """
    kafka.cluster.throttle(kafka.leader, 250)
    response = kafka.response(kafka.send_fetch(0))
    assert (response.throttle_time_ms, response.responses) == (250, [])
