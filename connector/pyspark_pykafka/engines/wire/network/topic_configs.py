"""
Settings of a topic, read with DescribeConfigs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.engines.error_mapping import map_error_code
from pyspark_pykafka.engines.wire.protocol.describe_configs import (
    DESCRIBE_CONFIGS,
    describe_configs_request,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.retry import Deadline


def fetch_topic_settings(
    cluster: Cluster, topic: str, names: Sequence[str], deadline: Deadline
) -> dict[str, str]:
    """
    Return the values of some of a topic's settings, as one broker reports them; empty if unset.

    Raises :class:`AuthorizationError` without the permission DescribeConfigs on the topic, and
    :class:`UnknownTopicError` if the broker does not know the topic (yet).
    """
    connection = cluster.any_connection(deadline)
    request = describe_configs_request(connection.version(DESCRIBE_CONFIGS), topic, names)
    response = cluster.request(connection, request, deadline)
    for described in response.topics:
        if described.error_code:
            action, permission = f"reading the settings of {topic}", "DescribeConfigs on it"
            raise map_error_code(described.error_code, action, permission)
        return {name: described.values.get(name) or "" for name in names}
    return dict.fromkeys(names, "")
