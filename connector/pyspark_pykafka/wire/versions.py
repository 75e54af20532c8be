"""
Which versions of Kafka's requests a broker speaks, and which of them we can use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.client import map_error_code
from pyspark_pykafka.errors import KafkaClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_pykafka.client import Address

_UNSUPPORTED = (35, "UNSUPPORTED_VERSION")
_SOFTWARE = "pyspark-pykafka"


@dataclass(frozen=True, slots=True)
class Versions:
    """
    The lowest and the highest version of each API that a broker has, by API key.
    """

    address: Address
    ranges: Mapping[int, tuple[int, int]]

    def common(self, request: Any, at_most: int) -> int:
        """
        Return the highest version that the broker, kafka-python's class and the caller know.

        Raises :class:`KafkaClientError` if there is none.
        """
        oldest, newest = self.ranges.get(request.API_KEY, (0, -1))
        lowest, highest = request.valid_versions
        highest = min(highest, at_most)
        found: int = min(newest, highest)
        if found >= max(oldest, lowest):
            return found
        has = f"{oldest} to {newest}" if newest >= 0 else "none"
        msg = (
            f"{self.address}: no common version of {request.name}: the broker has {has}, and this "
            f"engine {lowest} to {highest}; brokers from 2.4 on work, or set engine=librdkafka"
        )
        raise KafkaClientError(msg, *_UNSUPPORTED, retriable=False)


def ask_versions(ask: Callable[[Any], Any], address: Address) -> Versions:
    """
    Return what a broker says that it speaks; ``ask`` sends a request and returns the answer.
    """
    from kafka.protocol.metadata import ApiVersionsRequest

    from pyspark_pykafka import __version__

    # Version 3 is the first that says who asks; a broker that lacks it knows version 0.
    for version in (3, 0):
        request = ApiVersionsRequest(
            client_software_name=_SOFTWARE, client_software_version=__version__, version=version
        )
        answer = ask(request)
        if answer.error_code != _UNSUPPORTED[0]:
            break
    if answer.error_code:
        raise map_error_code(answer.error_code, f"asking {address} for its API versions")
    ranges = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    return Versions(address, ranges)
