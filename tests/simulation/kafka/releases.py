"""
Releases of Kafka whose brokers a cluster may have, by the versions of the APIs that they support.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_NONE = -1


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """
    ``max_versions`` holds the highest versions by API key, -1 for an API that the release lacks.
    APIs that are not in it have the versions of the newest release.
    """

    name: str
    max_versions: Mapping[int, int] = field(default_factory=dict)
    #: The version of the transaction protocol (KIP-890).
    transactions: int = 2


NEWEST = Release("4.3")

#: Topics have ids (KIP-516, Metadata 10), but are fetched by name (before Fetch 13).
KAFKA_3_0 = Release(
    "3.0",
    {
        0: 9,
        1: 12,
        2: 7,
        3: 11,
        8: 8,
        9: 8,
        10: 4,
        11: 7,
        13: 4,
        15: 5,
        22: 4,
        26: 3,
        60: 0,
        66: 0,
        75: _NONE,
    },
    transactions=1,
)

#: Topics have no ids.
KAFKA_2_7 = Release(
    "2.7",
    {
        **KAFKA_3_0.max_versions,
        0: 8,
        2: 5,
        3: 9,
        9: 7,
        10: 3,
        19: 6,
        20: 5,
        23: 3,
        24: 2,
        26: 2,
        32: 3,
        60: _NONE,
        65: _NONE,
        66: _NONE,
    },
    transactions=1,
)
