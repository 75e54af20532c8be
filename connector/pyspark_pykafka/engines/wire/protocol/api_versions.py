"""
Negotiates API versions with a broker (KIP-35): the ApiVersions request and the usable versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.error_codes import KafkaErrorCode
from pyspark_pykafka.engines.error_mapping import map_read_error_code
from pyspark_pykafka.engines.wire.protocol.primitives import Reader
from pyspark_pykafka.engines.wire.protocol.request import ApiSpec, Request
from pyspark_pykafka.errors import KafkaClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_pykafka.engines.wire.protocol.request import Api
    from pyspark_pykafka.settings.wire_config import Address

#: The largest version, since versions are signed 16-bit numbers: no upper bound.
MAX_VERSION = 32767

#: Kafka's error code and name for a version that a broker does not support.
UNSUPPORTED_VERSION = (KafkaErrorCode.UNSUPPORTED_VERSION.value, "UNSUPPORTED_VERSION")

# The first version with a throttle time, and the first with the client's software (KIP-511), which
# is also the first flexible one.
_THROTTLE_TIME = 1
_CLIENT_SOFTWARE = 3
_SOFTWARE = "pyspark-pykafka"


class BrokerApiVersions(NamedTuple):
    """
    The lowest and the highest version of each API that a broker supports, by API key.
    """

    address: Address
    ranges: Mapping[int, tuple[int, int]]

    def latest_usable(self, api: Api, max_version: int) -> int:
        """
        Return the highest version that the broker and we support, at most ``max_version``.

        Raises :class:`KafkaClientError` if there is none.
        """
        version = self.latest_usable_or_none(api, max_version)
        if version is not None:
            return version
        broker, client = self._bounds(api, max_version)
        supported = f"{broker[0]} to {broker[1]}" if broker[1] >= 0 else "none"
        msg = (
            f"{self.address}: no common version of {api.name}: the broker supports {supported}, "
            f"this engine {client[0]} to {client[1]}; use Kafka 2.4 or newer, or engine=librdkafka"
        )
        raise KafkaClientError(msg, *UNSUPPORTED_VERSION, retriable=False)

    def latest_usable_or_none(self, api: Api, max_version: int = MAX_VERSION) -> int | None:
        """
        Return the version of :meth:`latest_usable`, or None if there is none.
        """
        broker, client = self._bounds(api, max_version)
        version = min(broker[1], client[1])
        return version if version >= max(broker[0], client[0]) else None

    def _bounds(self, api: Api, max_version: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """
        Return the lowest and highest version that the broker supports, and that we may use.
        """
        min_version, newest = api.valid_versions
        return self.ranges.get(api.API_KEY, (0, -1)), (min_version, min(newest, max_version))


def negotiate_versions(
    send: Callable[[Request[ApiVersionsResponse]], ApiVersionsResponse], address: Address
) -> BrokerApiVersions:
    """
    Return the versions that a broker supports; ``send`` sends a request and returns its response.
    """
    from pyspark_pykafka import __version__

    # A broker that does not support the newer version supports version 0.
    for version in (_CLIENT_SOFTWARE, 0):
        response = send(api_versions_request(version, _SOFTWARE, __version__))
        if response.error_code != UNSUPPORTED_VERSION[0]:
            break
    if response.error_code:
        raise map_read_error_code(response.error_code, f"negotiating API versions with {address}")
    return BrokerApiVersions(address, response.ranges)


class ApiVersionsResponse(NamedTuple):
    """
    The lowest and highest versions that a broker supports, by API key; empty after an error.
    """

    error_code: int
    throttle_time_ms: int
    ranges: dict[int, tuple[int, int]]


def api_versions_request(
    version: int, software: str, software_version: str
) -> Request[ApiVersionsResponse]:
    """
    Return an ApiVersions request; from version 3 on it names the client's software.
    """
    if version < _CLIENT_SOFTWARE:
        return Request(API_VERSIONS, version, b"")
    encoding = API_VERSIONS.encoding(version)
    body = b"".join((encoding.string(software), encoding.string(software_version), encoding.tags))
    return Request(API_VERSIONS, version, body)


def read_api_versions_response(body: memoryview, version: int) -> ApiVersionsResponse:
    """
    Return a decoded response.
    """
    reader = Reader(body, version, _CLIENT_SOFTWARE)
    error = reader.int16()
    if error:
        # The broker answers in version 0, whatever version was requested.
        return ApiVersionsResponse(error, 0, {})
    ranges = {}
    for _ in range(reader.count()):
        key, min_version, max_version = reader.int16(), reader.int16(), reader.int16()
        ranges[key] = (min_version, max_version)
        reader.skip_tags()
    throttle = reader.int32() if version >= _THROTTLE_TIME else 0
    reader.skip_tags()
    return ApiVersionsResponse(0, throttle, ranges)


API_VERSIONS = ApiSpec(
    "ApiVersions", 18, (0, _CLIENT_SOFTWARE), _CLIENT_SOFTWARE, read_api_versions_response
)
