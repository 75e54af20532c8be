"""
The DescribeConfigs request for topics (KIP-133), and its response.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.wire.protocol.primitives import Reader
from pyspark_pykafka.engines.wire.protocol.request import ApiSpec, Request

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

# The first version with documentation, and the first flexible one (DescribeConfigsRequest.json).
_DOCUMENTATION, _FLEXIBLE = 3, 4

_TOPIC = struct.pack(">b", 2)
_FALSE = b"\x00"


class TopicConfigs(NamedTuple):
    """
    The values of a topic's settings by name, defaults included; empty after an error.
    """

    error_code: int
    topic: str
    values: dict[str, str | None]


class DescribeConfigsResponse(NamedTuple):
    """
    The settings of all requested topics.
    """

    throttle_time_ms: int
    topics: list[TopicConfigs]


def describe_configs_request(
    version: int, topics: Collection[str], names: Sequence[str]
) -> Request[DescribeConfigsResponse]:
    """
    Return a DescribeConfigs request for some settings of topics; any broker answers it.
    """
    encoding = DESCRIBE_CONFIGS.encoding(version)
    settings = [encoding.count(len(names)), *map(encoding.string, names), encoding.tags]
    pieces = [encoding.count(len(topics))]
    for topic in topics:
        pieces += [_TOPIC, encoding.string(topic), *settings]
    # include_synonyms, include_documentation
    pieces += [_FALSE] * (2 if version >= _DOCUMENTATION else 1)
    return Request(DESCRIBE_CONFIGS, version, b"".join([*pieces, encoding.tags]))


def read_describe_configs_response(body: memoryview, version: int) -> DescribeConfigsResponse:
    """
    Return a decoded response.
    """
    return _Reader(body, version, _FLEXIBLE).response()


DESCRIBE_CONFIGS = ApiSpec("DescribeConfigs", 32, (1, 4), _FLEXIBLE, read_describe_configs_response)


class _Reader(Reader):
    __slots__ = ()

    def response(self) -> DescribeConfigsResponse:
        throttle = self.int32()
        topics = [self._topic() for _ in range(self.count())]
        self.skip_tags()
        return DescribeConfigsResponse(throttle, topics)

    def _topic(self) -> TopicConfigs:
        error = self.int16()
        # error_message, resource_type
        self.skip_string()
        self.skip(1)
        name = self.string() or ""
        values = dict(self._setting() for _ in range(self.count()))
        self.skip_tags()
        return TopicConfigs(error, name, values)

    def _setting(self) -> tuple[str, str | None]:
        name, value = self.string() or "", self.string()
        # read_only, config_source, is_sensitive
        self.skip(3)
        for _ in range(self.count()):
            self._skip_synonym()
        if self._version >= _DOCUMENTATION:
            # config_type, documentation
            self.skip(1)
            self.skip_string()
        self.skip_tags()
        return name, value

    def _skip_synonym(self) -> None:
        # name, value, source
        self.skip_string()
        self.skip_string()
        self.skip(1)
        self.skip_tags()
