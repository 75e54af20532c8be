"""
What Kafka's own kafka-console-consumer tool shows of a topic.
"""

from __future__ import annotations

import os
import subprocess

from pyspark_pykafka.testing import KAFKA_VERSION, Record, find_java
from pyspark_pykafka.testing.jars import kafka_tools_jars

SECONDS = 60
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
    command = [
        *(str(find_java()), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        *("-cp", os.pathsep.join(map(str, kafka_tools_jars(KAFKA_VERSION)))),
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"),
        *("--max-messages", str(count), "--timeout-ms", str(SECONDS * 500)),
        *(it for pair in formats.items() for it in ("--formatter-property", "=".join(pair))),
    ]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    found = [_record(*line.split(_BETWEEN)) for line in answer.stdout.splitlines()]
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
