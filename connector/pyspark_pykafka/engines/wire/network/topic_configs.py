"""
Settings of topics, read with DescribeConfigs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.engines.error_mapping import map_error_code
from pyspark_pykafka.engines.wire.protocol.describe_configs import (
    DESCRIBE_CONFIGS,
    describe_configs_request,
)
from pyspark_pykafka.errors import KafkaClientError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.errors import PykafkaError
    from pyspark_pykafka.retry import Deadline


def fetch_topic_settings(
    cluster: Cluster, topics: Collection[str], names: Sequence[str], deadline: Deadline
) -> dict[str, dict[str, str] | PykafkaError]:
    """
    Return the values of some of the topics' settings, as one broker reports them; empty if unset.

    A topic without values has an error: :class:`AuthorizationError` without the permission
    DescribeConfigs on the topic, and :class:`UnknownTopicError` if the broker does not know the
    topic (yet). All topics have a :class:`KafkaClientError` if the broker does not support the
    request.
    """
    connection = cluster.any_connection(deadline)
    try:
        version = connection.version(DESCRIBE_CONFIGS)
    except KafkaClientError as unsupported:
        return dict.fromkeys(topics, unsupported)
    request = describe_configs_request(version, topics, names)
    response = cluster.request(connection, request, deadline)
    settings: dict[str, dict[str, str] | PykafkaError] = {
        topic: dict.fromkeys(names, "") for topic in topics
    }
    for described in response.topics:
        if described.error_code:
            action = f"reading the settings of {described.topic}"
            error = map_error_code(described.error_code, action, "DescribeConfigs on it")
            settings[described.topic] = error
        else:
            settings[described.topic] = {name: described.values.get(name) or "" for name in names}
    return settings
