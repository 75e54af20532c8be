"""
Checks the permissions that a query needs on its topics, its group and its transactional ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.doctor.finding import Finding, failed, ok, skipped, warning
from pyspark_pykafka.engines.selection import group_backend, transaction_client
from pyspark_pykafka.errors import (
    AuthorizationError,
    OptionsError,
    PykafkaError,
    UnknownTopicError,
)
from pyspark_pykafka.sink.ledger_entries import ledger_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_pykafka.engines.librdkafka.inspection import (
        ClusterDescription,
        ClusterInspection,
        TopicDescription,
    )
    from pyspark_pykafka.settings import KafkaSettings

_READ, _WRITE, _CREATE = "READ", "WRITE", "CREATE"


class Needs(NamedTuple):
    """
    The topics that a query reads and writes, its consumer group and its transactional-id prefix.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    group: str | None = None
    prefix: str | None = None


def check_permissions(
    inspection: ClusterInspection,
    cluster: ClusterDescription,
    kafka: KafkaSettings,
    needs: Needs,
) -> Iterator[Finding]:
    """
    Yield a finding for each topic, group and transactional id: whether it exists, and which
    permissions are missing.
    """
    for topic in needs.read:
        yield _check_topic(inspection, topic, {_READ})
    for topic in needs.write:
        yield _check_topic(inspection, topic, {_WRITE})
    if needs.group is not None:
        yield _check_group(kafka, needs.group)
    if needs.prefix is not None:
        yield _check_transactional_ids(kafka, needs.prefix)
        yield _check_ledger(inspection, cluster, ledger_topic(needs.prefix))


def _check_topic(inspection: ClusterInspection, topic: str, needed: set[str]) -> Finding:
    check = f"topic {topic}"
    try:
        description = inspection.describe_topic(topic)
    except UnknownTopicError as error:
        return failed(check, str(error), f"correct the name, or: pykafka topic create {topic}")
    except PykafkaError as error:
        return failed(check, str(error), f"allow {_listed(needed)} on the topic")
    lacking = _lacking(check, description, needed)
    return lacking or ok(check, f"{description.partitions} partitions, {_listed(needed)} allowed")


def _lacking(check: str, description: TopicDescription, needed: set[str]) -> Finding | None:
    """
    Return the finding on a topic without the needed operations, or None if all are allowed.
    """
    # A user who sees a topic may describe it: brokers that report operations report at least one.
    if not description.operations:
        return _unreported(check, needed)
    missing = needed - description.operations
    if not missing:
        return None
    return failed(check, f"no permission to {_listed(missing)}", f"allow {_listed(missing)} on it")


def _unreported(check: str, needed: set[str]) -> Finding:
    text = "exists, but the brokers do not report which operations the user may use on it"
    return skipped(check, text, f"check that {_listed(needed)} is allowed")


def _check_group(kafka: KafkaSettings, group: str) -> Finding:
    check = f"group {group}"
    advice = "allow READ on the consumer group"
    try:
        description = group_backend(kafka).describe(group, include_operations=True)
    except PykafkaError as error:
        return failed(check, str(error), advice)
    operations = description.operations
    if operations is None and description.members:
        return _unreported(check, {_READ})
    if operations is None:
        return ok(check, "does not exist yet; a query creates it, if READ is allowed")
    if _READ in operations:
        return ok(check, "READ allowed")
    return failed(check, "no permission to READ", advice)


def _check_transactional_ids(kafka: KafkaSettings, prefix: str) -> Finding:
    check = f"transactional ids {prefix}*"
    advice = f"allow DESCRIBE and WRITE on transactional ids with the prefix {prefix}"
    try:
        with transaction_client(kafka) as transactions:
            transactions.describe_all([f"{prefix}-doctor"])
    except AuthorizationError as error:
        return failed(check, str(error), advice)
    except OptionsError as error:
        return failed(check, "; ".join(error.mistakes), "exactly-once writes need this")
    except PykafkaError as error:
        return failed(check, str(error), "see the error; exactly-once writes need this")
    return ok(check, "DESCRIBE allowed; WRITE can be checked only by writing")


def _check_ledger(
    inspection: ClusterInspection, cluster: ClusterDescription, ledger: str
) -> Finding:
    check = f"ledger {ledger}"
    try:
        description = inspection.describe_topic(ledger)
    except UnknownTopicError:
        if _CREATE in cluster.operations:
            return ok(check, "does not exist; a stream creates it")
        return warning(
            check,
            "does not exist, and the user has no permission to CREATE topics on the cluster",
            f"allow CREATE, READ and WRITE on the topic {ledger}, or create it with one partition "
            "and cleanup.policy=compact",
        )
    except PykafkaError as error:
        return failed(check, str(error), f"allow CREATE, READ and WRITE on the topic {ledger}")
    lacking = _lacking(check, description, {_READ, _WRITE})
    return lacking or ok(check, "READ and WRITE allowed")


def _listed(operations: set[str]) -> str:
    return " and ".join(sorted(operations))
