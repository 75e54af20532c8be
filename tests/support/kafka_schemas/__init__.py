"""
Messages that kafka-python lacks, from Kafka's own schemas.

The files are those of ``kafka-clients`` 4.3.1, and kafka-python encodes and decodes them like its
own.
"""

from __future__ import annotations

import sys

from kafka.protocol.api_message import ApiMessage

_SCHEMAS = sys.modules[__name__]


class ConsumerGroupDescribeRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg,misc] # it has no types
    """
    Describes groups of the type ``consumer`` (KIP-848).
    """


class ConsumerGroupDescribeResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg,misc] # it has no types
    """
    The described groups.
    """
