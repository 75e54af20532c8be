"""
Reads topics with Kafka's own kafka-console-consumer.
"""

from __future__ import annotations

from tests.support.kafka_tool import SECONDS, run

from pyspark_pykafka.testing import Record

_NULL = "(null)"
_SEPARATOR = "|"
_FIELDS = ("timestamp", "partition", "offset", "headers", "key", "value")


def consume(bootstrap: str, topic: str, count: int) -> list[Record]:
    """
    Return ``count`` records in order of partition and offset; their contents must be plain text.
    """
    formats = {
        **{f"print.{name}": "true" for name in _FIELDS},
        "key.separator": _SEPARATOR,
        "headers.separator": ",",
        "null.literal": _NULL,
    }
    output = run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *(bootstrap, "--topic", topic, "--from-beginning"),
        *("--max-messages", str(count), "--timeout-ms", str(SECONDS * 500)),
        *(
            argument
            for pair in formats.items()
            for argument in ("--formatter-property", "=".join(pair))
        ),
    )
    records = [_record(*line.split(_SEPARATOR)) for line in output.splitlines()]
    return sorted(records, key=lambda record: (record.partition or 0, record.offset or 0))


def _record(time: str, partition: str, offset: str, headers: str, key: str, value: str) -> Record:
    pairs = [] if headers == "NO_HEADERS" else [pair.split(":") for pair in headers.split(",")]
    return Record(
        value=_content(value),
        key=_content(key),
        partition=int(partition.removeprefix("Partition:")),
        timestamp=int(time.removeprefix("CreateTime:")),
        headers=tuple((name, _content(text)) for name, text in pairs),
        offset=int(offset.removeprefix("Offset:")),
    )


def _content(text: str) -> bytes | None:
    return None if text == _NULL else text.encode()
