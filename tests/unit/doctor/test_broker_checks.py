"""
The findings of `pykafka doctor` about brokers; tests/broker has the checks of permissions.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.stub_brokers import Behaviour, StubCluster, StubGroup

from pyspark_pykafka.cli import main
from pyspark_pykafka.cli.exit_codes import ExitCode
from pyspark_pykafka.doctor.cluster import (
    check_clock,
    check_id_expiration,
    check_internal_topics,
    check_transaction_timeout,
)
from pyspark_pykafka.doctor.finding import Status
from pyspark_pykafka.engines import first_contact

if TYPE_CHECKING:
    from pathlib import Path

DAY_MS = 86_400_000


@pytest.fixture(autouse=True)
def no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Hide the configuration of the user who runs the tests.
    """
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("PYKAFKA_KAFKA_BOOTSTRAP_SERVERS", raising=False)


def findings(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    """
    Run the command, and return its exit code and its findings by check.
    """
    code = main(["doctor", "--json", *arguments])
    document = json.loads(capsys.readouterr().out)
    return code, {finding["check"]: finding for finding in document["findings"]}


def test_without_brokers_the_machine_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    """
    The checks of the brokers are skipped, which is not a failure.
    """
    code, by_check = findings(capsys)

    assert code == ExitCode.DONE
    assert by_check["brokers"]["status"] == "skipped"
    assert by_check["python"]["status"] == "ok"


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("client.id=doctor", "127.0.0.1:1: connecting failed"),
        ("enable.metrics.push=true", "Timed out"),
    ],
)
def test_unreachable_brokers(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    setting: str,
    text: str,
) -> None:
    """
    Unreachable brokers are reported with the reason, and no further checks are made, even with a
    setting that only librdkafka supports.
    """
    monkeypatch.setattr(first_contact, "FIRST_CONTACT_MS", 500)
    monkeypatch.setattr(first_contact, "_reached", set())
    properties = tmp_path / "client.properties"
    properties.write_text(f"bootstrap.servers=127.0.0.1:1\nlog_level=0\n{setting}\n")

    code, by_check = findings(capsys, "--command-config", str(properties), "--read", "t")

    assert code == ExitCode.FAILED
    assert by_check["brokers"]["status"] == "failed"
    assert by_check["brokers"]["text"].startswith("connecting: ")
    assert text in by_check["brokers"]["text"]
    assert by_check.keys().isdisjoint({"login", "topic t"})


def test_settings_that_librdkafka_rejects(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """
    A keystore that does not exist is a failure of the settings, with its path but no password.
    """
    properties = tmp_path / "client.properties"
    store = "ssl.keystore.location=/no.p12\nssl.keystore.password=SECRET"
    properties.write_text(f"bootstrap.servers=127.0.0.1:1\nsecurity.protocol=SSL\n{store}\n")

    code, by_check = findings(capsys, "--command-config", str(properties))

    assert code == ExitCode.FAILED
    assert by_check["kafka settings"]["status"] == "failed"
    assert "ssl.keystore.location: /no.p12" in by_check["kafka settings"]["text"]
    assert "SECRET" not in str(by_check)


def test_wrong_settings(capsys: pytest.CaptureFixture[str]) -> None:
    """
    A mistake in the settings is a finding with its text.
    """
    code, by_check = findings(capsys, "--bootstrap-server", "kafka://b:1")

    assert code == ExitCode.FAILED
    assert "give host:port only" in by_check["kafka settings"]["text"]


def test_brokers_that_report_no_operations(capsys: pytest.CaptureFixture[str]) -> None:
    """
    If the brokers do not report which operations a user may use, the doctor says so, and does not
    say that a permission is missing. A user who sees a topic may at least describe it.
    """
    groups = {"g": StubGroup([("client", None)])}
    with StubCluster(Behaviour(topics={"in": 1, "out": 1, "p-ledger": 1})) as stubs:
        stubs.set(groups=groups, group_operations=frozenset({31}))
        _, by_check = findings(
            capsys,
            *("--bootstrap-server", stubs.bootstrap),
            *("--read", "in", "--write", "out", "--group", "g", "--prefix", "p"),
        )

    for check in ("topic in", "topic out", "ledger p-ledger", "group g"):
        assert by_check[check]["status"] == "skipped", by_check[check]
        assert "do not report" in by_check[check]["text"]


def test_transaction_timeout_within_the_limit_of_the_brokers() -> None:
    """
    A transaction timeout beyond the maximum of the brokers is a failure.
    """
    settings = {"transaction.max.timeout.ms": "60000"}

    assert check_transaction_timeout(settings, 60_000).status is Status.OK
    assert check_transaction_timeout({}, 900_000).status is Status.OK
    finding = check_transaction_timeout(settings, 900_000)
    assert (finding.status, "the brokers allow 60000" in finding.text) == (Status.FAILED, True)


def test_expiration_of_transactional_ids() -> None:
    """
    An expiration of half a day is a warning; the default is long enough.
    """
    short = {"transactional.id.expiration.ms": str(DAY_MS // 2)}

    assert check_id_expiration({}).status is Status.OK
    assert check_id_expiration(short).text == "unused transactional ids expire after 0.5 days"
    assert check_id_expiration(short).status is Status.WARNING


def test_internal_topics_need_their_replicas() -> None:
    """
    An internal topic with more replicas than there are brokers is a failure.
    """
    settings = {
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "3",
    }

    group, transactions = check_internal_topics(settings, 1)

    assert (group.status, transactions.status) == (Status.OK, Status.FAILED)
    assert "is 3, with 1 broker: exactly-once writes wait" in transactions.text


@pytest.mark.parametrize(("ahead", "status"), [(-5, Status.OK), (30, Status.OK), (90, "warning")])
def test_records_from_the_future(ahead: int, status: str) -> None:
    """
    A record 90 s ahead of this machine's clock is a warning; 30 s are tolerated.
    """
    finding = check_clock("t", (1_000_000 + ahead) * 1000, 1_000_000)

    assert finding.status == status
    assert ("90 s later than this machine's clock" in finding.text) == (ahead == 90)


def test_a_timestamp_that_is_no_date() -> None:
    """
    A record from the year 55000 is shown in milliseconds.
    """
    finding = check_clock("t", 1_673_000_000_000_000, 1_000_000)

    assert finding.status == "warning"
    assert "is from 1673000000000000 ms since 1970, 1672999000000 s later" in finding.text
