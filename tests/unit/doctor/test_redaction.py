"""
The findings of `pykafka doctor` about credentials that Spark prints in plans.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pyspark_pykafka.cli import main
from pyspark_pykafka.doctor.finding import Status
from pyspark_pykafka.doctor.redaction import RECOMMENDED, check_redaction
from pyspark_pykafka.options.secrets import is_secret
from pyspark_pykafka.options.table import OPTIONS
from pyspark_pykafka.settings import KNOWN_NAMES

SETTING = "spark.sql.redaction.options.regex"
ALL_NAMES = [
    *(f"kafka.{name}" for name in sorted(KNOWN_NAMES)),
    *(option.name for option in OPTIONS),
]
LOGINS = [name for name in ALL_NAMES if is_secret(name)]


def test_the_recommended_setting_masks_every_login() -> None:
    """
    With the recommended setting Spark masks all options whose values the connector never prints.
    """
    assert {
        "kafka.sasl.jaas.config",
        "kafka.sasl.username",
        "kafka.sasl.password",
        "kafka.ssl.key.password",
        "kafka.ssl.key.pem",
        "kafka.ssl.keystore.key",
        "schema.registry.basic.auth.user.info",
        "schema.registry.bearer.auth.token",
        "schema.registry.url",
        "zookeeperDigest",
    } <= set(LOGINS)
    finding = check_redaction({SETTING: RECOMMENDED}, dict.fromkeys(LOGINS, "x"))
    assert finding is not None
    assert finding.status is Status.OK, finding.text


def test_logins_that_spark_prints() -> None:
    """
    Without the setting the finding names the options that Spark prints, and no value; Spark masks
    an option by its name or its value.
    """
    options = {
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": "s3cret-s",
        "kafka.sasl.jaas.config": 'PlainLoginModule required username="u" password="p";',
        "kafka.sasl.mechanism": "PLAIN",
        "schema.registry.basic.auth.user.info": "alice:p4ss",
    }

    finding = check_redaction({}, options)

    assert finding is not None
    assert finding.status is Status.WARNING
    names = re.findall(r"(?:kafka|schema)[.\w]+", finding.text)
    assert names == ["kafka.sasl.username", "schema.registry.basic.auth.user.info"]
    assert not [value for value in options.values() if value in finding.text]
    assert finding.advice == f"set {SETTING} to {RECOMMENDED}"


@pytest.mark.parametrize("options", [{}, {"kafka.bootstrap.servers": "h:9092", "subscribe": "t"}])
def test_no_login(options: dict[str, str]) -> None:
    """
    Options without credentials need no check.
    """
    assert check_redaction({}, options) is None


def test_a_changed_pattern_of_spark() -> None:
    """
    The setting spark.redaction.regex replaces Spark's default. If its value is valid only in Java's
    syntax, the check is skipped.
    """
    options = {"kafka.sasl.password": "x"}

    exposed = check_redaction({"spark.redaction.regex": "nothing"}, options)
    unknown = check_redaction({"spark.redaction.regex": r"\p{Alpha}"}, options)

    assert exposed is not None
    assert exposed.status is Status.WARNING
    assert unknown is not None
    assert (unknown.status, "kafka.sasl.password" in unknown.advice) == (Status.SKIPPED, True)


def test_the_command_checks_its_own_login(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    `pykafka doctor` checks the credentials of its configuration against the Spark settings
    of --conf.
    """
    file = tmp_path / "client.properties"
    file.write_text("sasl.username=alice\n")
    monkeypatch.setenv("PYKAFKA_CONFIG", str(tmp_path / "none.toml"))
    (tmp_path / "none.toml").write_text("")

    def statuses(*conf: str) -> list[str]:
        main(["doctor", "--json", "--command-config", str(file), *conf])
        findings = json.loads(capsys.readouterr().out)["findings"]
        return [finding["status"] for finding in findings if finding["check"] == "logins in plans"]

    assert statuses() == ["warning"]
    assert statuses("--conf", f"{SETTING}={RECOMMENDED}") == ["ok"]


def test_the_page_has_the_recommended_setting() -> None:
    """
    docs/deploying.md recommends the same setting.
    """
    page = Path(__file__).parents[3] / "docs" / "deploying.md"

    assert f'"{SETTING}", "{RECOMMENDED}"' in page.read_text()
