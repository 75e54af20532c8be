"""
A session with ZooKeeper: the client, its responses within a timeout, and the mapping of its errors.
"""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from pyspark_pykafka.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerUnavailableError,
    ProgressError,
)
from pyspark_pykafka.progress.store import ClaimLostError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_pykafka.options import ZooKeeperNodes

logger = logging.getLogger("pyspark_pykafka")

_RESPONSE_SECONDS = 5.0
_CLOSE_SECONDS = 10.0

_ACLS = {
    "open": OPEN_ACL_UNSAFE,
    "creator": CREATOR_ALL_ACL,
    "readable": [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE],
}

# Lost connections and timeouts: the server may or may not have executed the request.
_TRANSIENT = (KazooTimeoutError, ConnectionLoss, ConnectionClosedError, SessionExpiredError)

# Another process has changed the nodes of a transaction; no other error is a conflict.
_CONFLICTS = (BadVersionError, NodeExistsError, NoNodeError)


class ZooKeeperSession:
    """
    The session of one store, opened by the first :meth:`connect`, and by the first one after each
    :meth:`close`.
    """

    def __init__(self, nodes: ZooKeeperNodes, base: str) -> None:
        self._nodes = nodes
        self._base = base
        #: The client, while the session is open.
        self.client: KazooClient | None = None
        self._claimed: int | None = None

    def __repr__(self) -> str:
        return f"<ZooKeeperSession {self._nodes.hosts}, connected={self.client is not None}>"

    def connect(self) -> KazooClient:
        """
        Return the client, and connect it first if necessary.
        """
        if self.client is None:
            digest = self._nodes.digest
            client = KazooClient(
                self._nodes.hosts,
                timeout=self._nodes.session_timeout_ms / 1000,
                auth_data=None if digest is None else [("digest", ":".join(digest))],
                default_acl=_ACLS[self._nodes.acl],
            )
            _start(client)
            self.client = client
        return self.client

    def start_claim(self) -> None:
        """
        Require the present session in :meth:`check_claim` from now on.
        """
        self._claimed = _session_id(self.connect())

    def check_claim(self) -> None:
        """
        Raise :class:`ClaimLostError` if the session is no longer that of the claim.
        """
        assert self.client is not None
        if self.client.state == KazooState.LOST or _session_id(self.client) != self._claimed:
            msg = f"the session with ZooKeeper at {self._nodes.hosts} was lost"
            raise ClaimLostError(msg)

    def close(self) -> None:
        """
        End the session, which deletes its ephemeral nodes.
        """
        if self.client is not None:
            client, self.client = self.client, None
            if not _stop(client, _CLOSE_SECONDS):
                logger.warning(
                    "the session with ZooKeeper at %s could not be closed within %.0f s; ZooKeeper "
                    "ends it %d ms after its last message",
                    self._nodes.hosts,
                    _CLOSE_SECONDS,
                    self._nodes.session_timeout_ms,
                )

    @contextmanager
    def translating_errors(self, action: str) -> Iterator[None]:
        """
        Translate kazoo's errors into the connector's.
        """
        where = f"{action} {self._base} in ZooKeeper at {self._nodes.hosts}"
        try:
            yield
        except _TRANSIENT as cause:
            msg = f"{where}: no response ({cause or type(cause).__name__}); are its servers up?"
            raise BrokerUnavailableError(msg) from cause
        except NoAuthError as cause:
            msg = f"{where}: not allowed; zookeeperDigest must be a user in the ACL of the nodes"
            raise AuthorizationError(msg) from cause
        except AuthFailedError as cause:
            msg = f"{where}: the user or password in zookeeperDigest was rejected"
            raise AuthenticationError(msg) from cause
        except NoNodeError as cause:
            _, _, chroot = self._nodes.hosts.partition("/")
            advice = f"; is there a node /{chroot}, the chroot in zookeeperHosts?" if chroot else ""
            msg = f"{where}: a node does not exist{advice}"
            raise ProgressError("ZOOKEEPER_REFUSED", msg) from cause
        except KazooException as cause:
            msg = f"{where}: {type(cause).__name__} {cause}"
            raise ProgressError("ZOOKEEPER_REFUSED", msg) from cause


def _start(client: KazooClient) -> None:
    """
    Connect a client, or raise KazooTimeoutError after some seconds.

    ``KazooClient.start`` stops a client that does not connect, and waits for it without a limit.
    """
    client.start_async().wait(_RESPONSE_SECONDS)
    if not client.connected:
        _stop(client, 0)
        msg = "Connection time-out"
        raise KazooTimeoutError(msg)


def _stop(client: KazooClient, seconds: float) -> bool:
    """
    Stop a client, and return whether it stopped within some seconds.

    kazoo waits for the thread of the connection, which may wait for a DNS server: a lookup cannot
    be cancelled. The thread that waits for it can be abandoned.
    """
    failures: list[KazooException] = []

    def stop() -> None:
        try:
            client.stop()
            client.close()
        except KazooException as error:
            failures.append(error)

    thread = threading.Thread(target=stop, daemon=True)
    thread.start()
    thread.join(seconds)
    if failures:
        raise failures[0]
    return not thread.is_alive()


def wait_for_response(pending: Any) -> Any:
    """
    Wait for the response to a request that was sent, and return it.
    """
    return pending.get(timeout=_RESPONSE_SECONDS)


def transaction_conflicts(results: list[Any]) -> str:
    """
    Return the conflicts with other processes that have made a transaction fail; empty if it did
    not fail.

    kazoo returns the errors of a transaction's steps among the results. Any other error, such as a
    missing permission, is raised. Steps that were merely rolled back do not count.
    """
    errors = [result for result in results if isinstance(result, Exception)]
    causes = [
        error for error in errors if not isinstance(error, RolledBackError | RuntimeInconsistency)
    ]
    for cause in causes:
        if not isinstance(cause, _CONFLICTS):
            raise cause
    return ", ".join(sorted({type(error).__name__ for error in causes or errors}))


def _session_id(client: KazooClient) -> int | None:
    # There is no id between the end of one session and the start of the next.
    return client.client_id[0] if client.client_id else None
