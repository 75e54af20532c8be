"""
The permissions (ACLs) of exactly-once writes: the documented ones suffice, and each that is missing
is named at once.
"""

from __future__ import annotations

import re
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from tests.broker.test_wire_connection import SCRAM_MODULE, create_scram_users, login

from pyspark_pykafka.engines.selection import transaction_client
from pyspark_pykafka.errors import AuthorizationError
from pyspark_pykafka.options import parse_sink
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.sink.delivery import ExactlyOnceBatch, ExactlyOnceStream, SinkTask
from pyspark_pykafka.sink.transactional_ids import prefix_pattern
from pyspark_pykafka.testing import KafkaCluster
from pyspark_pykafka.testing.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pyspark_pykafka.sink.delivery import Delivery

SECONDS = 30.0
#: An error that is known at once is raised long before a timeout, and without a retry.
AT_ONCE_SECONDS = 10.0
COMMITTED = {"isolation.level": "read_committed"}
USER = login("SCRAM-SHA-512")
QUERY = str(uuid.UUID(int=5 << 100))

IDS, TOPIC, LEDGER = "transactional ids", "topic", "ledger"
WRITE, READ, CREATE = AclOperation.WRITE, AclOperation.READ, AclOperation.CREATE
DESCRIBE, DESCRIBE_CONFIGS = AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS

WRITE_IDS = "Write, which includes Describe, on the transactional id {topic}-"

Grant: TypeAlias = "tuple[str, AclOperation]"

#: The permissions that `docs/writing.md` names. Read and Write include Describe.
BATCH: frozenset[Grant] = frozenset({(IDS, WRITE), (TOPIC, WRITE)})
STREAM: frozenset[Grant] = BATCH | {(LEDGER, CREATE), (LEDGER, READ), (LEDGER, WRITE)}


@dataclass(frozen=True)
class Guarded:
    """
    A broker with ACLs, and a user; anonymous clients may do everything.
    """

    kafka: KafkaCluster
    port: int

    def allow(self, topic: str, grants: Iterable[Grant]) -> None:
        """
        Grant the user only these permissions on a topic, its ledger, and the transactional ids with
        the topic's name as the prefix.
        """
        admin = self.kafka.admin()
        everything = AclBindingFilter(
            *(ResourceType.ANY, None, ResourcePatternType.ANY, None, None),
            *(AclOperation.ANY, AclPermissionType.ANY),
        )
        for future in admin.delete_acls([everything]).values():
            future.result(SECONDS)
        bindings = [
            AclBinding(
                *_resource(subject, topic),
                f"User:{USER['sasl_username']}",
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for subject, operation in grants
        ]
        for future in admin.create_acls(bindings).values():
            future.result(SECONDS)

    def options(self, topic: str) -> dict[str, str]:
        """
        Return the options of an exactly-once write by the user, with long timeouts.
        """
        settings = {
            "bootstrap_servers": f"localhost:{self.port}",
            "security_protocol": "SASL_PLAINTEXT",
            "max_block_ms": "600000",
            "delivery_timeout_ms": "600000",
            "default_api_timeout_ms": "600000",
            **USER,
        }
        return {
            **{f"kafka.{name.replace('_', '.')}": value for name, value in settings.items()},
            "topic": topic,
            "deliveryGuarantee": "exactly-once",
            "transactionalIdPrefix": topic,
        }

    def seen(self, topic: str) -> list[bytes | None]:
        """
        Return the values that readers of committed records see, once decided transactions have
        ended.
        """
        everyone = KafkaSettings.of({"bootstrap.servers": self.kafka.bootstrap})
        with transaction_client(everyone) as transactions:
            # The commit of a micro-batch does not wait for the transactions' markers.
            transactions.wait_until_visible(transactions.list_ids(prefix_pattern(topic)))
        return [r.value for r in self.kafka.consume(topic, COMMITTED)]


def _resource(subject: str, topic: str) -> tuple[ResourceType, str, ResourcePatternType]:
    if subject == IDS:
        return ResourceType.TRANSACTIONAL_ID, topic, ResourcePatternType.PREFIXED
    name = f"{topic}-ledger" if subject == LEDGER else topic
    return ResourceType.TOPIC, name, ResourcePatternType.LITERAL


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    port, secure, controller = free_ports(3)
    listeners = f"CLIENT://localhost:{port},SCRAM://localhost:{secure}"
    config: dict[str, str | int | bool] = {
        "listeners": f"{listeners},CONTROLLER://localhost:{controller}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": (
            "CLIENT:PLAINTEXT,SCRAM:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "controller.quorum.voters": f"1@localhost:{controller}",
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.scram.scram-sha-512.sasl.jaas.config": SCRAM_MODULE,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with KafkaCluster(config=config, port=port) as kafka:
        create_scram_users(kafka)
        yield Guarded(kafka, secure)


@pytest.fixture
def topic(guarded: Guarded) -> str:
    return guarded.kafka.create_topic(f"orders-{uuid.uuid4().hex[:8]}")


def run(delivery: Delivery, batch: int) -> None:
    """
    Write a row and commit it; abort it if the commit fails, as Spark does.
    """
    row = pa.RecordBatch.from_pydict({"value": [b"%d" % batch]})
    query = "" if isinstance(delivery, ExactlyOnceBatch) else QUERY
    message = delivery.write([row], SinkTask(0, 0, query, batch, abs(batch)))
    try:
        delivery.commit([message], 1, batch)
    except AuthorizationError:
        delivery.abort([message], 1)
        raise


def refused(guarded: Guarded, topic: str, delivery: Delivery, batch: int) -> str:
    """
    Return the message of the error, which comes at once, is not retriable, and leaves no row.
    """
    before, started = guarded.seen(topic), time.monotonic()
    with pytest.raises(AuthorizationError) as caught:
        run(delivery, batch)
    took = time.monotonic() - started

    assert not caught.value.retriable
    assert took < AT_ONCE_SECONDS, caught.value
    assert guarded.seen(topic) == before
    return str(caught.value)


def stream(guarded: Guarded, topic: str) -> ExactlyOnceStream:
    return ExactlyOnceStream(parse_sink(guarded.options(topic), streaming=True))


def test_the_documented_permissions_suffice_for_a_batch_write(guarded: Guarded, topic: str) -> None:
    """
    A batch write needs only the permission Write, on the transactional ids and on the topic.
    """
    guarded.allow(topic, BATCH)
    run(ExactlyOnceBatch(parse_sink(guarded.options(topic), streaming=False)), -1)

    assert guarded.seen(topic) == [b"-1"]


@pytest.mark.parametrize("describes", [False, True])
def test_the_documented_permissions_suffice_for_a_stream(
    guarded: Guarded, topic: str, caplog: pytest.LogCaptureFixture, *, describes: bool
) -> None:
    """
    A stream creates its ledger, commits, and repeats a batch after a restart. The permission
    DescribeConfigs only avoids a warning.
    """
    guarded.allow(topic, STREAM | ({(LEDGER, DESCRIBE_CONFIGS)} if describes else set()))
    for batch in (0, 1, 1):
        run(stream(guarded, topic), batch)

    assert guarded.seen(topic) == [b"0", b"1"]
    messages = [record.getMessage() for record in caplog.records]
    assert any("Allow DescribeConfigs" in message for message in messages) is not describes


@pytest.mark.parametrize(
    ("missing", "left", "names"),
    [
        ((IDS, WRITE), DESCRIBE, f"allow {WRITE_IDS}"),
        ((IDS, WRITE), None, f"allow {WRITE_IDS}"),
        ((TOPIC, WRITE), DESCRIBE, "allow Write on the topic {topic}"),
        ((TOPIC, WRITE), None, "which Read and Write include, on the topic {topic}"),
    ],
)
def test_a_missing_permission_of_a_batch_write_is_named(
    guarded: Guarded, topic: str, missing: Grant, left: AclOperation | None, names: str
) -> None:
    """
    The error names the transactional id or the topic, and what to allow.
    """
    guarded.allow(topic, (BATCH - {missing}) | ({(missing[0], left)} if left else set()))
    delivery = ExactlyOnceBatch(parse_sink(guarded.options(topic), streaming=False))

    message = refused(guarded, topic, delivery, -1)
    assert re.search(names.format(topic=topic) + r"(?!-ledger)", message), message


@pytest.mark.parametrize(
    ("missing", "left", "names"),
    [
        ((IDS, WRITE), DESCRIBE, f"allow {WRITE_IDS}"),
        ((IDS, WRITE), None, f"allow {WRITE_IDS}"),
        ((TOPIC, WRITE), DESCRIBE, "allow Write on the topic {topic}"),
        ((TOPIC, WRITE), None, "which Read and Write include, on the topic {topic}"),
        ((LEDGER, CREATE), None, "allow Create on the topic {topic}-ledger"),
        ((LEDGER, READ), None, "allow Read on the topic {topic}-ledger"),
        ((LEDGER, WRITE), None, "allow Write on the topic {topic}-ledger"),
    ],
)
def test_a_missing_permission_of_a_stream_is_named(
    guarded: Guarded, topic: str, missing: Grant, left: AclOperation | None, names: str
) -> None:
    """
    The error of the first micro-batch names the transactional id or the topic, and what to allow;
    once it is allowed, the query continues.
    """
    guarded.allow(topic, (STREAM - {missing}) | ({(missing[0], left)} if left else set()))
    message = refused(guarded, topic, stream(guarded, topic), 0)
    # The ledger's name begins with the topic's name.
    assert re.search(names.format(topic=topic) + r"(?!-ledger)", message), message

    guarded.allow(topic, STREAM)
    run(stream(guarded, topic), 0)
    assert guarded.seen(topic) == [b"0"]


def test_a_streaming_query_needs_no_other_permissions(
    spark: SparkSession, guarded: Guarded, topic: str, checkpoint: str, tmp_path: Path
) -> None:
    """
    The documented permissions suffice for a streaming query, whose driver looks the topic up before
    tasks start.
    """
    guarded.allow(topic, STREAM)
    (tmp_path / "rows.txt").write_text("a\nb\n")
    rows = spark.readStream.text(str(tmp_path)).writeStream.format("pykafka")
    writer = rows.options(**guarded.options(topic), checkpointLocation=checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination(120)

    assert sorted(value or b"" for value in guarded.seen(topic)) == [b"a", b"b"]
