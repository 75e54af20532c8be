"""
A setting of a topic, read with DescribeConfigs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.engines.error_mapping import map_error_code
from pyspark_pykafka.engines.wire.protocol.describe_configs import (
    DESCRIBE_CONFIGS,
    describe_configs_request,
)

if TYPE_CHECKING:
    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.retry import Deadline


def fetch_topic_setting(cluster: Cluster, topic: str, name: str, deadline: Deadline) -> str:
    """
    Return the value of a topic's setting, as one broker reports it; empty if it has none.

    Raises :class:`AuthorizationError` without the permission DescribeConfigs on the topic, and
    :class:`UnknownTopicError` if the broker does not know the topic (yet).
    """
    connection = cluster.any_connection(deadline)
    request = describe_configs_request(connection.version(DESCRIBE_CONFIGS), topic, [name])
    response = cluster.request(connection, request, deadline)
    for described in response.topics:
        if described.error_code:
            action, permission = f"reading the setting {name} of {topic}", "DescribeConfigs on it"
            raise map_error_code(described.error_code, action, permission)
        return described.values.get(name) or ""
    return ""
