"""
The progress store of a query, as options specify it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Acl = Literal["open", "creator", "readable"]


@dataclass(frozen=True, slots=True)
class NoStore:
    """
    Progress is recorded in Spark's checkpoint only.
    """

    @property
    def name(self) -> str:
        """
        The name of the store in the checkpoint.
        """
        return ""


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """
    Progress is committed to a consumer group.
    """

    group_id: str

    @property
    def name(self) -> str:
        """
        The name of the store in the checkpoint.
        """
        return f"consumerGroup {self.group_id}"


@dataclass(frozen=True, slots=True)
class ZooKeeperNodes:
    """
    Progress is recorded in ZooKeeper, below ``root``/``id``; ``digest`` is (user, password).
    """

    hosts: str
    root: str
    id: str
    session_timeout_ms: int
    digest: tuple[str, str] | None = field(repr=False)
    acl: Acl

    @property
    def name(self) -> str:
        """
        The name of the store in the checkpoint.
        """
        return f"zookeeper {self.hosts}{self.root}/{self.id}"


StoreOptions = NoStore | ConsumerGroup | ZooKeeperNodes
