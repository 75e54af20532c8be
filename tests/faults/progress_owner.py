"""
A process that owns a progress store, for tests that freeze or kill it.

Arguments: the options as JSON, and the query's id. For each number on its standard input it records
that offset of partition 0, and prints "recorded" or the error.
"""

from __future__ import annotations

import json
import sys

from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.offsets import QueryIdentity, StreamOffset, TopicPartition
from pyspark_pykafka.options import Subscribe, parse_stream_source
from pyspark_pykafka.progress.factory import make_progress_store
from pyspark_pykafka.progress.store import ClaimLostError
from pyspark_pykafka.progress.store_session import StoreSession


def main() -> None:
    """
    Record the offsets from standard input, retrying as the recorder does.
    """
    options = parse_stream_source(json.loads(sys.argv[1]))
    assert isinstance(options.strategy, Subscribe)
    tp = TopicPartition(options.strategy.topics[0], 0)
    session = StoreSession(make_progress_store(options), "the child")
    for batch, line in enumerate(sys.stdin):
        done = StreamOffset({tp: int(line)}, query=QueryIdentity(sys.argv[2], batch))
        sys.stdout.write(_record(session, done) + "\n")
        sys.stdout.flush()


def _record(session: StoreSession, done: StreamOffset) -> str:
    while True:
        try:
            session.record(done)
        except ClaimLostError:
            continue
        except PykafkaError as error:
            if error.retriable:
                continue
            return str(error).replace("\n", " ")
        return "recorded"


if __name__ == "__main__":
    main()
