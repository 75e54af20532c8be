"""
Produces records at a steady rate, in a separate process that the measured queries do not slow down.

The value of a record is the time at which it was produced.

``python -m bench.steady BOOTSTRAP TOPIC RATE`` runs until its standard input is closed.
"""

from __future__ import annotations

import select
import sys
import time

from confluent_kafka import Producer

WAIT_SECONDS = 0.001
FLUSH_SECONDS = 10.0
VALUE_BYTES = 100


def main(bootstrap: str, topic: str, rate: float) -> None:
    """
    Produce the records that are due, wait a millisecond, repeat.
    """
    # By default, librdkafka sticks to a partition for 10 ms; with 0 it picks one for each record.
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 0, "sticky.partitioning.linger.ms": 0}
    )
    start = time.monotonic()
    written = 0
    while not select.select([sys.stdin], [], [], WAIT_SECONDS)[0]:
        due = int((time.monotonic() - start) * rate)
        for _ in range(due - written):
            producer.produce(topic, str(time.time_ns()).ljust(VALUE_BYTES))
        written = max(due, written)
        producer.poll(0)
    unsent = producer.flush(FLUSH_SECONDS)
    if unsent:
        sys.exit(f"{unsent} records for {topic} were not written within {FLUSH_SECONDS:g} s.")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
