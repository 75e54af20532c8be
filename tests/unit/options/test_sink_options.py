"""
The options of a write.
"""

from __future__ import annotations

import pickle

import pytest

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.options import SinkOptions, parse_batch_source, parse_sink, parse_source
from pyspark_pykafka.sink.delivery import (
    AtLeastOnce,
    ExactlyOnceBatch,
    ExactlyOnceStream,
    make_delivery,
)

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


@pytest.mark.parametrize("streaming", [True, False])
def test_defaults(streaming: bool) -> None:
    """
    The bootstrap servers are the only mandatory option: without the option topic, each row names
    its topic.
    """
    assert parse_sink(SERVERS, streaming=streaming) == SinkOptions(
        engine="auto",
        topic=None,
        kafka=parse_sink(SERVERS, streaming=False).kafka,
        delivery_guarantee="at-least-once",
        transactional_id_prefix=None,
    )


def test_every_sink_option_is_parsed() -> None:
    """
    Option names are case-insensitive; includeHeaders and Spark's own options have no effect.
    """
    common = {
        "TOPIC": " Orders ",
        "deliveryguarantee": "At-Least-Once",
        "ENGINE": "librdkafka",
        "checkpointlocation": "/c",
        "queryname": "Q",
        "includeheaders": "true",
        "kafka.acks": "all",
        "kafka.enable.idempotence": "false",
    }

    sink = parse_sink({**SERVERS, **common}, streaming=True)

    assert (sink.topic, sink.engine) == ("Orders", "librdkafka")
    assert pickle.loads(pickle.dumps(sink)) == sink  # noqa: S301 - our own bytes


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topic": ""}, "topic is ''; it must be: a topic name"),
        ({"topic": "a b"}, "topic is 'a b'; 'a b' is not a legal topic name"),
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
def test_invalid_sink_options_are_reported(options: dict[str, str], text: str) -> None:
    """
    Each mistake is reported with its remedy; settings that could lose rows are rejected.
    """
    with pytest.raises(OptionsError, match="are wrong") as caught:
        parse_sink({**SERVERS, **options}, streaming=True)

    (mistake,) = caught.value.mistakes
    assert text in mistake


def test_a_view_for_both_directions_has_both_sets_of_options() -> None:
    """
    With topic and a selection of topics, a batch query ignores the options of the other direction,
    and still reports unknown names and its own mistakes.
    """
    both = {
        **SERVERS,
        "subscribe": "in",
        "topic": "out",
        "startingOffsets": "earliest",
        "deliveryGuarantee": "exactly-once",
        "kafka.acks": "all",
        "kafka.fetch.max.bytes": "1000000",
    }

    assert parse_sink(both, streaming=False).topic == "out"
    assert parse_source(both).strategy == parse_batch_source(both).strategy
    for wrong in ({"topik": "x"}, {"startingOffsets": "soon"}):
        with pytest.raises(OptionsError):
            parse_batch_source({**both, **wrong})
    with pytest.raises(OptionsError, match="'subscribe' is not valid in a streaming write"):
        parse_sink(both, streaming=True)


def test_exactly_once_rejects_librdkafka() -> None:
    """
    Exactly-once with the engine librdkafka is rejected when options are parsed, before any write.
    """
    common = {**SERVERS, "deliveryGuarantee": "exactly-once"}
    sink = parse_sink({**common, "transactionalIdPrefix": "orders"}, streaming=False)
    assert (sink.delivery_guarantee, sink.transactional_id_prefix) == ("exactly-once", "orders")

    with pytest.raises(OptionsError, match="librdkafka does not support.*set it to: wire"):
        parse_sink({**common, "engine": "librdkafka"}, streaming=False)


def test_stream_cannot_write_to_its_own_ledger() -> None:
    """
    An exactly-once stream cannot write to the topic of its ledger; other writes have no ledger.
    """
    common = {**SERVERS, "topic": "orders-ledger", "transactionalIdPrefix": "orders"}
    exactly = {**common, "deliveryGuarantee": "exactly-once"}
    with pytest.raises(OptionsError, match="topic is 'orders-ledger'") as caught:
        make_delivery(parse_sink(exactly, streaming=True), streaming=True)
    (mistake,) = caught.value.mistakes
    assert "transactionalIdPrefix 'orders'" in mistake

    apart = {**exactly, "topic": "orders"}
    batch = make_delivery(parse_sink(exactly, streaming=False), streaming=False)
    repeating = make_delivery(parse_sink(common, streaming=True), streaming=True)
    exact = make_delivery(parse_sink(apart, streaming=True), streaming=True)
    assert [type(delivery) for delivery in (batch, repeating, exact)] == [
        ExactlyOnceBatch,
        AtLeastOnce,
        ExactlyOnceStream,
    ]


def test_sink_engine_is_parsed() -> None:
    """
    A sink uses the common engine, and auto by default.
    """
    assert parse_sink({**SERVERS, "engine": "wire"}, streaming=False).engine == "wire"
    assert parse_sink(SERVERS, streaming=True).engine == "auto"


@pytest.mark.parametrize(
    ("schema", "is_registered"),
    [
        ('{"type": "object", "properties": {"id": {"type": "integer"}}}', True),
        ('{"type": ["object", "null"]}', True),
        ('{"type": "array", "items": {"type": "string"}}', True),
        ('{"type": "struct", "fields": []}', False),
        ('{"type": "array", "elementType": "long", "containsNull": true}', False),
        ('"string"', False),
        ("id BIGINT", False),
        ("`a b` decimal(9,2) NOT NULL COMMENT 'x', b: int", False),
        ("struct<id: bigint>", False),
        ("map<string, int>", False),
    ],
)
def test_schema_of_written_json(schema: str, is_registered: bool) -> None:
    """
    A JSON Schema is registered; the type of a read, as DDL or as Spark's JSON text, is not.
    """
    registry = {"schema.registry.url": "http://localhost:8081"}
    options = {**SERVERS, **registry, "topic": "t", "valueFormat": "json", "valueSchema": schema}

    encoding = parse_sink(options, streaming=False).encoding

    assert encoding.value.schema == (schema if is_registered else None)


@pytest.mark.parametrize("registry", [{}, {"schema.registry.url": "http://localhost:8081"}])
@pytest.mark.parametrize("format_name", ["keyFormat", "valueFormat"])
@pytest.mark.parametrize(
    "schema",
    [
        '{"type": "object", "properties": {},}',
        '{"fields": []}',
        *("true", "1", "[]", "null", '"x"'),
        *("/schemas/order.json", "order.json", "order", "an order"),
    ],
)
def test_schema_of_written_json_that_is_none(
    registry: dict[str, str], format_name: str, schema: str
) -> None:
    """
    A text that is neither a JSON Schema nor a type of Spark is an error: no other schema is
    registered in its place.
    """
    name = format_name.replace("Format", "Schema")
    options = {**SERVERS, **registry, "topic": "t", format_name: "json", name: schema}

    with pytest.raises(
        OptionsError, match=f"{name} is '.*'; it must be: the text of a JSON Schema"
    ):
        parse_sink(options, streaming=False)
