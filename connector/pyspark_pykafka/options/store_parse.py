"""
Parses the options of the progress store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_pykafka.options import table
from pyspark_pykafka.options.store_values import (
    Acl,
    ConsumerGroup,
    NoStore,
    StoreOptions,
    ZooKeeperNodes,
)

if TYPE_CHECKING:
    from pyspark_pykafka.options.option import Option
    from pyspark_pykafka.options.option_reader import OptionReader
    from pyspark_pykafka.settings import KafkaSettings

_ZOOKEEPER_OPTIONS: tuple[Option[Any], ...] = (
    table.ZOOKEEPER_HOSTS,
    table.ZOOKEEPER_ID,
    table.ZOOKEEPER_ROOT,
    table.ZOOKEEPER_SESSION_TIMEOUT,
    table.ZOOKEEPER_DIGEST,
    table.ZOOKEEPER_ACL,
)


def read_store(reader: OptionReader, kafka: KafkaSettings) -> StoreOptions:
    """
    Return the progress store, and report options of a store that is not used.
    """
    kind = reader.get(table.PROGRESS_STORE)
    if kind == "zookeeper":
        return _zookeeper(reader)
    for option in _ZOOKEEPER_OPTIONS:
        if reader.has(option):
            reader.mistakes.append(
                f"{option.name} is set, but progressStore is '{kind}'; it must be: zookeeper"
            )
    group = kafka.get("group.id", "").strip()
    if kind == "none":
        return NoStore()
    if not group:
        reader.mistakes.append(
            "progressStore is 'consumerGroup', but kafka.group.id is missing; set it to the "
            "consumer group to commit to"
        )
    return ConsumerGroup(group)


def _zookeeper(reader: OptionReader) -> ZooKeeperNodes:
    for option in (table.ZOOKEEPER_HOSTS, table.ZOOKEEPER_ID):
        if not reader.has(option):
            reader.mistakes.append(
                f"progressStore is 'zookeeper', but {option.name} is missing; it must be: "
                f"{option.parser.expected}"
            )
    digest = reader.find(table.ZOOKEEPER_DIGEST)
    acl: Acl = reader.find(table.ZOOKEEPER_ACL) or ("open" if digest is None else "creator")
    if digest is None and acl != "open":
        reader.mistakes.append(
            f"zookeeperAcl is '{acl}', but zookeeperDigest is missing; "
            "set it to that user and password"
        )
    return ZooKeeperNodes(
        hosts=reader.find(table.ZOOKEEPER_HOSTS) or "",
        root=reader.get(table.ZOOKEEPER_ROOT),
        id=reader.find(table.ZOOKEEPER_ID) or "",
        session_timeout_ms=reader.get(table.ZOOKEEPER_SESSION_TIMEOUT),
        digest=digest,
        acl=acl,
    )
