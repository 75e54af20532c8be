"""
The login of one connection, and when it has to be renewed (KIP-368).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.engines.wire.network.sasl import Send
    from pyspark_pykafka.engines.wire.protocol.request import Api
    from pyspark_pykafka.settings.wire_config import Address, Sasl

# A login is renewed after this share of its lifetime (KIP-368). Brokers refuse to renew one that is
# less than a second old.
_RENEWAL_SHARE = 0.85
_MIN_RENEWAL_SECONDS = 1.1


class SaslSession:
    """
    Logs a connection in, and again before the login expires; does nothing without SASL settings.
    """

    def __init__(self, address: Address, sasl: Sasl | None, now: Callable[[], float]) -> None:
        self._address = address
        self._sasl = sasl
        self._now = now
        #: The monotonic time at which to log in again, once nothing is in flight.
        self.due_at = math.inf

    @property
    def is_due(self) -> bool:
        """
        Whether the login expires soon.
        """
        return self._now() >= self.due_at

    def log_in(self, send: Send, version: Callable[[Api, int], int]) -> float:
        """
        Authenticate, and return the lifetime of the login in seconds, 0 if it does not expire.

        ``version`` returns the highest usable version of a request, up to a maximum.
        """
        if self._sasl is None:
            return 0.0
        from kafka.protocol.sasl import SaslAuthenticateRequest

        from pyspark_pykafka.engines.wire.network.sasl import Login

        login = Login(self._sasl, self._address)
        lifetime = login.run(send, version(SaslAuthenticateRequest, 2))
        due_at = self._now() + max(_RENEWAL_SHARE * lifetime, _MIN_RENEWAL_SECONDS)
        self.due_at = due_at if lifetime else math.inf
        return lifetime
