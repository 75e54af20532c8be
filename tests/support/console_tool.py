"""
What Kafka's own kafka-console-consumer tool shows of a topic.
"""

from __future__ import annotations

from tests.support.kafka_tool import SECONDS, run

from pyspark_pykafka.testing import Record

_NULL = "(null)"
_BETWEEN = "|"
_SHOWN = ("timestamp", "partition", "offset", "headers", "key", "value")


def printed(bootstrap: str, topic: str, count: int) -> list[Record]:
    """
    Return the records that the tool prints, by partition and offset; they must be plain text.
    """
    formats = {
        **{f"print.{name}": "true" for name in _SHOWN},
        "key.separator": _BETWEEN,
        "headers.separator": ",",
        "null.literal": _NULL,
    }
    answer = run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *(bootstrap, "--topic", topic, "--from-beginning"),
        *("--max-messages", str(count), "--timeout-ms", str(SECONDS * 500)),
        *(it for pair in formats.items() for it in ("--formatter-property", "=".join(pair))),
    )
    found = [_record(*line.split(_BETWEEN)) for line in answer.splitlines()]
    return sorted(found, key=lambda record: (record.partition or 0, record.offset or 0))


def _record(time: str, partition: str, offset: str, headers: str, key: str, value: str) -> Record:
    pairs = [] if headers == "NO_HEADERS" else [it.split(":") for it in headers.split(",")]
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
