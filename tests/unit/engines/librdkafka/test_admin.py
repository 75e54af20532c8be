"""
The request timeouts of librdkafka's admin client.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from pyspark_pykafka.engines.librdkafka.admin import RetryingAdmin
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings import KafkaSettings


def test_the_last_request_has_a_minimum_timeout() -> None:
    """
    With a request timeout of a few milliseconds librdkafka aborts the process when the client is
    closed.
    """
    admin = RetryingAdmin(KafkaSettings.of({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}))
    timeouts = []

    def request(_: object, seconds: float) -> dict[str, Future[Any]]:
        timeouts.append(seconds)
        future: Future[Any] = Future()
        future.set_result("done")
        return {"all": future}

    assert admin.call(request, "the request", Deadline.after(0.002)) == {"all": "done"}
    assert timeouts[0] >= 1.0
