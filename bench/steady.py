"""
Writes records at a steady rate, each holding the time at which it was written; a process of its
own, so that what it measures does not slow it down.

``python -m bench.steady BOOTSTRAP TOPIC RATE`` goes on until its standard input is closed.
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
    Write what is due, wait a millisecond, and again.
    """
    # One partition sticks for 10 ms by default; without that, each record goes its own way at once.
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 0, "sticky.partitioning.linger.ms": 0}
    )
    began = time.monotonic()
    written = 0
    while not select.select([sys.stdin], [], [], WAIT_SECONDS)[0]:
        due = int((time.monotonic() - began) * rate)
        for _ in range(due - written):
            producer.produce(topic, str(time.time_ns()).ljust(VALUE_BYTES))
        written = max(due, written)
        producer.poll(0)
    unsent = producer.flush(FLUSH_SECONDS)
    if unsent:
        sys.exit(f"{unsent} records for {topic} were not written within {FLUSH_SECONDS:g} s.")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
