"""
The alert rules, evaluated by promtool: each fires when it should, and only then.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support.promtool import PromtoolError, check_alert, check_configuration

pytestmark = pytest.mark.promtool

RULES = Path(__file__).parents[2] / "docs" / "monitoring" / "alerts.yml"
CONFIGURATION = RULES.with_name("prometheus.yml")
ALERTS = re.findall(r"- alert: (\w+)", RULES.read_text())

DRIVER = 'instance="driver:9400", job="pykafka"'
QUERY = f'{DRIVER}, query_id="q", query_name="flights"'
PARTITION = f'{QUERY}, topic="orders", partition="0"'
RUNNING = f"pykafka_query_running{{{QUERY}}}"
FAILED = f"pykafka_query_failed{{{QUERY}}}"
RUNNING_ELSEWHERE = RUNNING.replace("driver:9400", "other:9400")
FAILURES = f'pykafka_query_failures_total{{{QUERY}, error="DataLossError"}}'
LAST_EVENT = f"pykafka_query_last_event_timestamp_seconds{{{QUERY}}}"
LAG = f'pykafka_lag_seconds{{{PARTITION}, source="0"}}'
REPLAYS = f"pykafka_replayed_batches_total{{{QUERY}}}"
LOST = f'pykafka_lost_offsets_total{{{PARTITION}, source="0"}}'
LOSSES = f'pykafka_data_losses_total{{{QUERY}, source="0", condition="KAFKA_DATA_LOSS.X"}}'
LETTERS = f"pykafka_dead_letters_total{{{PARTITION}}}"
TOPIC_END = f'pykafka_dead_letter_topic_end_offset{{{DRIVER}, topic="dead", partition="0"}}'
UP = f"up{{{DRIVER}}}"


def audited(verdict: str) -> str:
    return f'pykafka_audited_batches_total{{{DRIVER}, auditor="copies", verdict="{verdict}"}}'


class Alert(NamedTuple):
    """
    One alert as it fires: its severity and summary, and the series whose labels it has.
    """

    severity: str
    summary: str
    series: str
    dropped: tuple[str, ...] = ()

    def labels(self, name: str) -> dict[str, str]:
        labels = dict(re.findall(r'(\w+)="([^"]*)"', self.series))
        kept = {label: text for label, text in labels.items() if label not in self.dropped}
        return {"alertname": name, "severity": self.severity, **kept}


FIRING = {
    "PykafkaQueryFailed": Alert("warning", "Query flights failed: DataLossError", FAILURES),
    "PykafkaQueryDown": Alert("critical", "Query flights has failed and was not restarted", FAILED),
    "PykafkaQueryStuck": Alert(
        "critical", "Query flights has not finished a micro-batch for 15 minutes", RUNNING
    ),
    "PykafkaDriverDown": Alert("critical", "The driver at driver:9400 does not respond", UP),
    "PykafkaQueryGone": Alert(
        "critical", "Query flights was running, and its driver is gone", RUNNING
    ),
    "PykafkaLag": Alert(
        "warning",
        "Query flights reads orders 11m 40s late",
        LAG,
        ("instance", "job", "partition", "source"),
    ),
    "PykafkaReplays": Alert(
        "warning", "Query flights reads micro-batches again and again", REPLAYS
    ),
    "PykafkaRecordsLost": Alert("critical", "Query flights lost unread records of orders", LOST),
    "PykafkaDataLoss": Alert("critical", "Query flights lost records: KAFKA_DATA_LOSS.X", LOSSES),
    "PykafkaDeadLetters": Alert("warning", "Query flights set records of orders aside", LETTERS),
    "PykafkaBadRecords": Alert(
        "warning",
        "Records were written to the dead-letter topic dead",
        TOPIC_END,
        ("instance", "job", "partition"),
    ),
    "PykafkaAuditMismatch": Alert("critical", "Audit copies: records missing", audited("missing")),
}


class Case(NamedTuple):
    """
    The values of each series, one per minute, and whether the alert fires at ``minute``.
    """

    description: str
    alert: str
    series: dict[str, str]
    minute: int
    fires: bool


CASES = (
    Case("first failure", "PykafkaQueryFailed", {FAILURES: "_x11 1x9"}, 14, fires=True),
    Case(
        "failure of a driver that died",
        "PykafkaQueryFailed",
        {FAILURES: "_x9 1 stale"},
        12,
        fires=True,
    ),
    Case("second failure", "PykafkaQueryFailed", {FAILURES: "1x20 2x9"}, 24, fires=True),
    Case("failure half an hour ago", "PykafkaQueryFailed", {FAILURES: "_ 1x39"}, 35, fires=False),
    Case(
        "failed for good",
        "PykafkaQueryDown",
        {FAILED: "0x4 1x20", RUNNING: "1x4 0x20", FAILURES: "_x5 1x20"},
        16,
        fires=True,
    ),
    Case(
        "failed and restarted",
        "PykafkaQueryDown",
        {FAILED: "0x4 1x4 0x20", RUNNING: "1x4 0x4 1x20", FAILURES: "_x5 1x20"},
        20,
        fires=False,
    ),
    Case(
        "failed once, restarted, and ended without an error",
        "PykafkaQueryDown",
        {FAILED: "0x4 1x2 0x30", RUNNING: "1x4 0x2 1x4 0x30", FAILURES: "_x5 1x35"},
        30,
        fires=False,
    ),
    Case(
        "ended without an error",
        "PykafkaQueryDown",
        {FAILED: "0x24", RUNNING: "1x4 0x20"},
        20,
        fires=False,
    ),
    Case("stuck", "PykafkaQueryStuck", {RUNNING: "1x30", LAST_EVENT: "60x30"}, 17, fires=True),
    Case(
        "a long micro-batch",
        "PykafkaQueryStuck",
        {RUNNING: "1x30", LAST_EVENT: "60x30"},
        15,
        fires=False,
    ),
    Case("ended", "PykafkaQueryStuck", {RUNNING: "1 0x30", LAST_EVENT: "60x30"}, 20, fires=False),
    Case("dead driver", "PykafkaDriverDown", {UP: "1x9 0x20"}, 15, fires=True),
    Case("a missed scrape", "PykafkaDriverDown", {UP: "1x9 0 1x20"}, 15, fires=False),
    Case("dead driver", "PykafkaQueryGone", {RUNNING: "1x9 stale"}, 16, fires=True),
    Case(
        "a driver that is gone from the service discovery",
        "PykafkaQueryGone",
        {RUNNING: "1x9 stale", UP: "1x9 stale"},
        16,
        fires=True,
    ),
    Case("a missed scrape", "PykafkaQueryGone", {RUNNING: "1x9 stale 1x9"}, 16, fires=False),
    Case(
        "another driver runs the query",
        "PykafkaQueryGone",
        {RUNNING: "1x9 stale", RUNNING_ELSEWHERE: "_x12 1x9"},
        18,
        fires=False,
    ),
    Case(
        "the query ended before its driver",
        "PykafkaQueryGone",
        {RUNNING: "1x7 0 stale"},
        16,
        fires=False,
    ),
    Case("lag", "PykafkaLag", {LAG: "0 700x10"}, 7, fires=True),
    Case("lag that passes", "PykafkaLag", {LAG: "0 700x3 0x9"}, 7, fires=False),
    Case("replays", "PykafkaReplays", {REPLAYS: "0+1x20"}, 20, fires=True),
    Case("replay after a restart", "PykafkaReplays", {REPLAYS: "0x9 1x20"}, 20, fires=False),
    Case("first loss", "PykafkaRecordsLost", {LOST: "0x19 5x9"}, 24, fires=True),
    Case("loss and a dead driver", "PykafkaRecordsLost", {LOST: "_x16 5 stale"}, 20, fires=True),
    Case("loss in a first batch", "PykafkaRecordsLost", {LOST: "_x16 5x9"}, 20, fires=True),
    Case("no loss", "PykafkaRecordsLost", {LOST: "_x16 0x9"}, 20, fires=False),
    Case("loss half an hour ago", "PykafkaRecordsLost", {LOST: "5x40"}, 35, fires=False),
    Case("a recreated topic", "PykafkaDataLoss", {LOSSES: "_x16 1x9"}, 20, fires=True),
    Case("second loss", "PykafkaDataLoss", {LOSSES: "1x19 2x9"}, 24, fires=True),
    Case("loss and a dead driver", "PykafkaDataLoss", {LOSSES: "_x16 1 stale"}, 20, fires=True),
    Case("loss half an hour ago", "PykafkaDataLoss", {LOSSES: "1x40"}, 35, fires=False),
    Case("first dead letter", "PykafkaDeadLetters", {LETTERS: "_x16 1x9"}, 20, fires=True),
    Case(
        "dead letter and a dead driver",
        "PykafkaDeadLetters",
        {LETTERS: "_x16 1 stale"},
        20,
        fires=True,
    ),
    Case("more dead letters", "PykafkaDeadLetters", {LETTERS: "1x19 4x9"}, 24, fires=True),
    Case("dead letter half an hour ago", "PykafkaDeadLetters", {LETTERS: "1x40"}, 35, fires=False),
    Case("first bad record", "PykafkaBadRecords", {TOPIC_END: "0x19 1x9"}, 24, fires=True),
    Case(
        "bad records before the first scrape",
        "PykafkaBadRecords",
        {TOPIC_END: "_x9 7x40"},
        12,
        fires=False,
    ),
    Case("a recreated topic", "PykafkaBadRecords", {TOPIC_END: "7x19 0x9"}, 24, fires=False),
    Case(
        "first mismatch", "PykafkaAuditMismatch", {audited("missing"): "_x16 1x9"}, 20, fires=True
    ),
    Case(
        "mismatch and a dead driver",
        "PykafkaAuditMismatch",
        {audited("missing"): "_x16 1 stale"},
        20,
        fires=True,
    ),
    Case("complete", "PykafkaAuditMismatch", {audited("complete"): "_x16 1+1x9"}, 20, fires=False),
    Case("unknown", "PykafkaAuditMismatch", {audited("unknown"): "_x16 1+1x9"}, 20, fires=False),
    Case(
        "mismatch half an hour ago",
        "PykafkaAuditMismatch",
        {audited("missing"): "1x40"},
        35,
        fires=False,
    ),
)


def check(case: Case, folder: Path) -> None:
    alert = FIRING[case.alert]
    expected = {
        "exp_labels": alert.labels(case.alert),
        "exp_annotations": {"summary": alert.summary},
    }
    firing = [expected] if case.fires else []
    check_alert(RULES, folder, case.alert, case.minute, case.series, firing)


def test_configuration_is_valid() -> None:
    """
    Prometheus accepts the configuration, and the alert rules name the configuration's job.
    """
    check_configuration(CONFIGURATION)

    jobs = set(re.findall(r"job_name: (\w+)", CONFIGURATION.read_text()))
    assert set(re.findall(r'job="(\w+)"', RULES.read_text())) == jobs


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert}: {case.description}")
def test_alert(case: Case, tmp_path: Path) -> None:
    """
    The alert fires with its labels and its summary, or does not fire.
    """
    check(case, tmp_path)


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_has_cases(alert: str) -> None:
    """
    For each alert there is a case in which it fires, and one in which it does not.
    """
    assert {case.fires for case in CASES if case.alert == alert} == {True, False}


def test_an_unmet_expectation_is_reported(tmp_path: Path) -> None:
    """
    A case whose expected outcome is inverted fails, so promtool compares the outcomes.
    """
    with pytest.raises(PromtoolError, match="PykafkaQueryFailed"):
        check(CASES[0]._replace(fires=False), tmp_path)
