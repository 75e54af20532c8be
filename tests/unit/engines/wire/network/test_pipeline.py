"""
Requests to several brokers at the same time, on connections that throttle or end.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka.engines.wire.network.cluster import Cluster
from pyspark_pykafka.engines.wire.network.pipeline import request_pipelined
from pyspark_pykafka.engines.wire.protocol.metadata import METADATA, metadata_request
from pyspark_pykafka.errors import BrokerUnavailableError
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.settings.wire_config import wire_config

if TYPE_CHECKING:
    from pyspark_pykafka.engines.wire.network.connection import Connection
    from pyspark_pykafka.engines.wire.protocol.metadata import MetadataResponse
    from pyspark_pykafka.engines.wire.protocol.request import Request

# Longer than a test may take.
THROTTLE_MS = 3_600_000


def metadata_of_t(connection: Connection) -> Request[MetadataResponse]:
    version = connection.version(METADATA)
    return metadata_request(version, ["t"], allow_auto_topic_creation=False)


class Throttling(Behaviour):
    """
    A broker whose quota is used up.
    """

    def throttle_ms(self, node: int, api_key: int) -> int:  # noqa: ARG002
        return THROTTLE_MS


def test_a_connection_that_ends_while_it_is_throttled_is_an_error() -> None:
    """
    Nothing is in flight at that point: the end of the connection arrives as input that is no
    response.
    """
    with ExitStack() as client, ExitStack() as brokers:
        stubs = brokers.enter_context(StubCluster(Throttling()))
        cluster = Cluster(wire_config(KafkaSettings.of({"bootstrap.servers": stubs.bootstrap})))
        client.callback(cluster.close)
        (address,) = cluster.addresses(Deadline.after(10))
        closing = threading.Timer(0.3, brokers.pop_all().close)
        closing.start()
        result = request_pipelined(
            cluster,
            {address: [("t", metadata_of_t)]},
            Deadline.after(7_200),
            7_200.0,
        )
        closing.join()

    assert isinstance(result.errors[address], BrokerUnavailableError)
