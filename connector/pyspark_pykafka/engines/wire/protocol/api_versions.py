"""
Which versions of Kafka's requests a broker speaks, and which of them we can use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_pykafka.engines.error_mapping import map_error_code
from pyspark_pykafka.engines.wire.protocol.primitives import Reader
from pyspark_pykafka.engines.wire.protocol.request import Api, ApiSpec, Request
from pyspark_pykafka.errors import KafkaClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_pykafka.settings.wire_config import Address

#: What bounds no version: they have 16 bits.
MAX_VERSION = 32767

#: Kafka's number and name for a version that a broker does not have.
UNSUPPORTED_VERSION = (35, "UNSUPPORTED_VERSION")

_THROTTLES = 1
# The first flexible version, too.
_SAYS_WHO_ASKS = 3
_SOFTWARE = "pyspark-pykafka"


class BrokerApiVersions(NamedTuple):
    """
    The lowest and the highest version of each API that a broker has, by API key.
    """

    address: Address
    ranges: Mapping[int, tuple[int, int]]

    def latest_usable(self, request: Api, max_version: int) -> int:
        """
        Return the highest version that the broker, the request's class and the caller know.

        Raises :class:`KafkaClientError` if there is none.
        """
        found = self.latest_usable_or_none(request, max_version)
        if found is not None:
            return found
        (oldest, newest), (lowest, highest) = self._bounds(request, max_version)
        has = f"{oldest} to {newest}" if newest >= 0 else "none"
        msg = (
            f"{self.address}: no common version of {request.name}: the broker has {has}, and this "
            f"engine {lowest} to {highest}; brokers from 2.4 on work, or set engine=librdkafka"
        )
        raise KafkaClientError(msg, *UNSUPPORTED_VERSION, retriable=False)

    def latest_usable_or_none(self, request: Api, max_version: int = MAX_VERSION) -> int | None:
        """
        Return the same as :meth:`latest_usable`, or None if there is none.
        """
        (oldest, newest), (lowest, highest) = self._bounds(request, max_version)
        found = min(newest, highest)
        return found if found >= max(oldest, lowest) else None

    def _bounds(self, request: Api, max_version: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """
        Return the lowest and highest version that the broker has, and that we may use.
        """
        lowest, highest = request.valid_versions
        return self.ranges.get(request.API_KEY, (0, -1)), (lowest, min(highest, max_version))


def negotiate_versions(ask: Callable[[Any], Any], address: Address) -> BrokerApiVersions:
    """
    Return what a broker says that it speaks; ``ask`` sends a request and returns the answer.
    """
    from pyspark_pykafka import __version__

    # A broker that lacks the version that says who asks knows version 0.
    for version in (_SAYS_WHO_ASKS, 0):
        answer: ApiVersionsResponse = ask(api_versions_request(version, _SOFTWARE, __version__))
        if answer.error_code != UNSUPPORTED_VERSION[0]:
            break
    if answer.error_code:
        raise map_error_code(answer.error_code, f"asking {address} for its API versions")
    return BrokerApiVersions(address, answer.ranges)


class ApiVersionsResponse(NamedTuple):
    """
    The versions that a broker has, by API key; none of them after an error.
    """

    error_code: int
    throttle_time_ms: int
    ranges: dict[int, tuple[int, int]]


def api_versions_request(
    version: int, software: str, software_version: str
) -> Request[ApiVersionsResponse]:
    """
    Ask a broker what it speaks; from version 3 on it is told who asks.
    """
    if version < _SAYS_WHO_ASKS:
        return Request(API_VERSIONS, version, b"")
    encoding = API_VERSIONS.encoding(version)
    body = b"".join((encoding.string(software), encoding.string(software_version), encoding.tags))
    return Request(API_VERSIONS, version, body)


def read_api_versions_response(body: memoryview, version: int) -> ApiVersionsResponse:
    """
    Return what an answer says.
    """
    reader = Reader(body, version, _SAYS_WHO_ASKS)
    error = reader.int16()
    if error:
        # What follows has version 0, whatever was asked for.
        return ApiVersionsResponse(error, 0, {})
    ranges = {}
    for _ in range(reader.count()):
        key, oldest, newest = reader.int16(), reader.int16(), reader.int16()
        ranges[key] = (oldest, newest)
        reader.skip_tags()
    throttle = reader.int32() if version >= _THROTTLES else 0
    reader.skip_tags()
    return ApiVersionsResponse(0, throttle, ranges)


API_VERSIONS = ApiSpec.of(
    "ApiVersions", 18, (0, _SAYS_WHO_ASKS), _SAYS_WHO_ASKS, read_api_versions_response
)
