"""
The options of writing.
"""

from __future__ import annotations

import pickle

import pytest

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.options import SinkOptions, parse_sink
from pyspark_pykafka.sink.delivery import make_delivery

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


@pytest.mark.parametrize("streaming", [True, False])
def test_defaults(streaming: bool) -> None:
    """
    The servers are enough; topics then come with the rows.
    """
    assert parse_sink(SERVERS, streaming=streaming) == SinkOptions(
        engine="auto",
        topic=None,
        include_headers=False,
        kafka=parse_sink(SERVERS, streaming=False).kafka,
        checkpoint_location=None,
        query_name=None,
        delivery_guarantee="at-least-once",
        transactional_id_prefix=None,
    )


def test_every_option_of_writing() -> None:
    """
    Each is read in any case of its name; what Spark sets itself is kept for names of things.
    """
    given = {
        "TOPIC": " Orders ",
        "deliveryguarantee": "At-Least-Once",
        "ENGINE": "librdkafka",
        "checkpointlocation": "/c",
        "queryname": "Q",
        "includeheaders": "true",
        "kafka.acks": "all",
        "kafka.enable.idempotence": "false",
    }

    sink = parse_sink({**SERVERS, **given}, streaming=True)

    assert (sink.topic, sink.checkpoint_location, sink.query_name) == ("Orders", "/c", "Q")
    assert pickle.loads(pickle.dumps(sink)) == sink  # noqa: S301 - our own bytes


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topic": ""}, "topic is ''; it must be: the name of a topic"),
        ({"topic": "a b"}, "topic is 'a b'; 'a b' cannot be the name of a topic"),
        ({"transactionalIdPrefix": "a b"}, "'a b'; it must be: at most 200 letters, digits"),
        ({"deliveryGuarantee": "twice"}, "it must be: one of: at-least-once"),
        ({"subscribe": "t"}, "'subscribe' is not valid in a streaming write"),
        ({"kafka.acks": "1"}, "kafka.acks is '1'; it must be: all"),
        ({"kafka.acks": "0"}, "kafka.acks is '0'; it must be: all"),
        ({"kafka.key.serializer": "C"}, "kafka.key.serializer is not supported"),
        ({"kafka.value.serializer": "C"}, "kafka.value.serializer is not supported"),
        ({"kafka.transactional.id": "x"}, "kafka.transactional.id is not supported"),
        ({"kafka.retries": "0"}, "kafka.retries is '0'; it must be: at least 1"),
        ({"kafka.max.in.flight": "6"}, "it must be: at most 5 for the idempotent producer"),
        ({"kafka.delivery.timeout.ms": "0"}, "a number of milliseconds, at least 1"),
    ],
)
def test_mistakes_of_writing(options: dict[str, str], text: str) -> None:
    """
    K07: each is told with what to do; what would lose rows is refused.
    """
    with pytest.raises(OptionsError, match="are wrong") as caught:
        parse_sink({**SERVERS, **options}, streaming=True)

    (mistake,) = caught.value.mistakes
    assert text in mistake


def test_librdkafka_cannot_hand_transactions_over() -> None:
    """
    What is refused is said before anything is written.
    """
    given = {**SERVERS, "deliveryGuarantee": "exactly-once"}
    sink = parse_sink({**given, "transactionalIdPrefix": "orders"}, streaming=False)
    assert (sink.delivery_guarantee, sink.transactional_id_prefix) == ("exactly-once", "orders")

    with pytest.raises(OptionsError, match="librdkafka has no way to do.*set it to: wire"):
        parse_sink({**given, "engine": "librdkafka"}, streaming=False)


def test_a_stream_does_not_write_into_its_own_ledger() -> None:
    """
    Its rows would be read as what it has committed; only an exactly-once stream has a ledger.
    """
    given = {**SERVERS, "topic": "orders-ledger", "transactionalIdPrefix": "orders"}
    exactly = {**given, "deliveryGuarantee": "exactly-once"}
    with pytest.raises(OptionsError, match="topic is 'orders-ledger'") as caught:
        make_delivery(parse_sink(exactly, streaming=True), streaming=True)
    (mistake,) = caught.value.mistakes
    assert "transactionalIdPrefix 'orders'" in mistake

    assert make_delivery(parse_sink(exactly, streaming=False), streaming=False)
    assert make_delivery(parse_sink(given, streaming=True), streaming=True)
    assert make_delivery(parse_sink({**exactly, "topic": "orders"}, streaming=True), streaming=True)


def test_engine_is_chosen_for_writing_too() -> None:
    """
    A sink takes the engine that it is told, and any by itself.
    """
    assert parse_sink({**SERVERS, "engine": "wire"}, streaming=False).engine == "wire"
    assert parse_sink(SERVERS, streaming=True).engine == "auto"
