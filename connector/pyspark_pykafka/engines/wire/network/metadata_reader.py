"""
Reads the metadata of a cluster without trusting a single broker.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.wire.network.metadata_freshness import FreshnessCheck
from pyspark_pykafka.engines.wire.network.racing import TRANSIENT_ERRORS
from pyspark_pykafka.engines.wire.network.reachability import Reachability
from pyspark_pykafka.engines.wire.protocol.metadata import METADATA, metadata_request
from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError
from pyspark_pykafka.settings.wire_config import Address

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Unpack

    from pyspark_pykafka.engines.wire.network.broker_selector import BrokerSelector
    from pyspark_pykafka.engines.wire.network.connection import Connection
    from pyspark_pykafka.engines.wire.network.metadata_freshness import MetadataChecks
    from pyspark_pykafka.engines.wire.protocol.metadata import MetadataResponse
    from pyspark_pykafka.engines.wire.protocol.request import Request
    from pyspark_pykafka.retry import Deadline
    from pyspark_pykafka.settings.wire_config import WireConfig

logger = logging.getLogger("pyspark_pykafka")

# The timeout of further metadata requests once there is a response.
_CONFIRMATION_SECONDS = 5.0

# Once one broker's metadata is complete, the plan waits this long in total for the metadata of
# others. If no other broker responds, the plan uses the first response, and for a while later plans
# do not wait.
_SECOND_RESPONSE_SECONDS = 2.0
_SECOND_RESPONSES = Reachability()

# How many topics an error names.
_MAX_NAMES = 3


@dataclass(slots=True)
class MetadataReader:
    """
    Requests metadata from one broker after another until it is known to be fresh.
    """

    config: WireConfig
    brokers: BrokerSelector
    creates_topics: bool
    #: The broker of the last fresh metadata.
    last_source: Address | None = field(init=False, default=None)
    #: Whether the last metadata shows reliably which topics do not exist.
    is_confirmed: bool = field(init=False, default=True)

    def read(
        self,
        topics: Collection[str] | None,
        deadline: Deadline,
        **checks: Unpack[MetadataChecks],
    ) -> MetadataResponse:
        """
        Return fresh metadata of these topics, or of all topics (None); see ``Cluster.metadata``.
        """
        check = FreshnessCheck(
            self.config.bootstrap,
            topics,
            confirms_new_topics=not self.creates_topics
            and not _SECOND_RESPONSES.is_unreachable(self.config.bootstrap),
            **checks,
        )
        second_limit: Deadline | None = None
        used: set[Address] = set()
        request = partial(self._metadata_request, topics)
        while True:
            limit = self._confirmation_limit(check, deadline)
            if check.responses and check.is_complete:
                second_limit = limit = second_limit or limit
            try:
                address, response = self.brokers.request_from_any(request, used, limit)
            except TRANSIENT_ERRORS as error:
                # No other broker responds.
                if not check.responses:
                    raise
                self._reject_stale(check, error)
                if second_limit is not None and second_limit.expired:
                    _SECOND_RESPONSES.record_failure(self.config.bootstrap)
                break
            used.add(address)
            self._add_response(check, address, response)
            if check.is_settled:
                break
        return self._accept(check)

    def _add_response(
        self, check: FreshnessCheck, address: Address, response: MetadataResponse
    ) -> None:
        """
        Add a broker's response to the check; brokers with stale metadata are demoted.
        """
        self.brokers.update_known_brokers(Address(b.host, b.port) for b in response.brokers)
        if check.add(address, response):
            self.last_source = address
        else:
            self.brokers.demote(address)
        for behind in check.behind:
            self.brokers.demote(behind)

    def _accept(self, check: FreshnessCheck) -> MetadataResponse:
        """
        Return the result of a check; raise an error if no second broker confirms that topics were
        lost.
        """
        if check.needs_second_response or check.rests_on_one_broker:
            self._warn_of_one_broker()
        metadata = check.result()
        self.is_confirmed = check.is_confirmed
        if check.lost_topics and not check.is_confirmed:
            raise self.unconfirmed_error(check.lost_topics)
        if not metadata.brokers:
            msg = f"{self.last_source}: no brokers in the metadata; has that broker just started?"
            raise BrokerUnavailableError(msg)
        return metadata

    def unconfirmed_error(self, topics: Collection[str]) -> PykafkaError:
        """
        Return the error for known topics that a single broker reports as missing or changed.
        """
        names = ", ".join(sorted(topics)[:_MAX_NAMES])
        msg = (
            f"{self.last_source} reports {names} as missing or changed, and no other broker "
            "responds to confirm it"
        )
        return BrokerUnavailableError(msg)

    def _metadata_request(
        self, topics: Collection[str] | None, connection: Connection
    ) -> Request[MetadataResponse]:
        version = connection.version(METADATA)
        return metadata_request(version, topics, allow_auto_topic_creation=self.creates_topics)

    def _warn_of_one_broker(self) -> None:
        logger.warning(
            "%s alone returns metadata, and no other broker confirms it: if that broker is cut off "
            "from its controllers, records that others have received since are not read",
            self.last_source,
        )

    def _confirmation_limit(self, check: FreshnessCheck, deadline: Deadline) -> Deadline:
        if not check.responses:
            return deadline
        seconds = _SECOND_RESPONSE_SECONDS if check.is_complete else _CONFIRMATION_SECONDS
        return deadline.within(seconds)

    def _reject_stale(self, check: FreshnessCheck, error: PykafkaError) -> None:
        reason = check.stale_reason()
        if reason is not None:
            msg = (
                f"no broker returns fresh metadata: {reason}; are brokers cut off from their "
                f"controllers? ({error})"
            )
            raise BrokerUnavailableError(msg)
