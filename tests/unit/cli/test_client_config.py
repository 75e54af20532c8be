"""
The brokers and the login of a command, without anything secret on the command line.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka.cli import main
from pyspark_pykafka.cli.arguments import with_timeout
from pyspark_pykafka.cli.client_config import client_settings
from pyspark_pykafka.cli.exit_codes import ExitCode

PAGE = Path(__file__).parents[3] / "docs/commands.md"
CONFIG = """
[clusters.default]
bootstrap.servers = "default:9092"
sasl.username = "default-user"
sasl.password = "SECRET"

[clusters.staging]
"bootstrap.servers" = "staging:9092"
enable.ssl.certificate.verification = false
request.timeout.ms = 5000
"""


@pytest.fixture
def written_config(config_file: Path) -> Path:
    """
    Write the configuration file, which only its owner can read.
    """
    config_file.parent.mkdir()
    config_file.write_text(CONFIG)
    config_file.chmod(0o600)
    return config_file


def settings_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """
    Return the values that `pykafka config` shows.
    """
    assert main(["config", "--json", *arguments]) == ExitCode.DONE
    output = capsys.readouterr()
    assert output.err == ""
    return {name: setting["value"] for name, setting in json.loads(output.out).items()}


@pytest.mark.usefixtures("written_config")
def test_the_default_cluster_needs_no_argument(capsys: pytest.CaptureFixture[str]) -> None:
    """
    All settings of the default cluster apply; its user name and password are masked.
    """
    assert settings_of(capsys) == {
        "bootstrap.servers": "default:9092",
        "sasl.username": "********",
        "sasl.password": "********",
    }


@pytest.mark.usefixtures("written_config")
def test_a_login_goes_to_its_own_cluster_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """
    The default cluster's login is not used once anything else names brokers.
    """
    settings = {"bootstrap.servers": "other:1"}
    properties = tmp_path / "client.properties"
    properties.write_text("bootstrap.servers=other:1\n")

    assert settings_of(capsys, "--bootstrap-server", "other:1") == settings
    assert settings_of(capsys, "--command-config", str(properties)) == settings
    monkeypatch.setenv("PYKAFKA_KAFKA_BOOTSTRAP_SERVERS", "other:1")
    assert settings_of(capsys) == settings


def test_a_named_cluster_has_its_own_brokers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, written_config: Path
) -> None:
    """
    A named cluster without brokers is an error: the brokers in the environment belong to another
    cluster, and so do the settings beside them.
    """
    written_config.write_text(f"{CONFIG}\n[clusters.unfinished]\nsasl.username = 'u'\n")
    monkeypatch.setenv("PYKAFKA_KAFKA_SASL_PASSWORD", "SECRET")
    assert settings_of(capsys, "--cluster", "staging")["sasl.password"] == "********"
    monkeypatch.setenv("PYKAFKA_KAFKA_BOOTSTRAP_SERVERS", "production:9092")

    assert "sasl.password" not in settings_of(capsys, "--cluster", "staging")
    assert main(["config", "--cluster", "unfinished"]) == ExitCode.WRONG_ARGUMENTS
    assert "'unfinished' of" in (error := capsys.readouterr().err)
    assert "has no bootstrap.servers" in error


def test_a_file_of_java_properties(tmp_path: Path) -> None:
    """
    The file of `--command-config` is parsed as Kafka's own tools parse it: with continued lines,
    other separators and escapes.
    """
    properties = tmp_path / "client.properties"
    properties.write_text(
        "! comment\n"
        "bootstrap.servers : b:1\n"
        "client.rack\t r\\u00e4ck\\=1\n"
        "client.id = a\x0cb \n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        '    username="alice" \\\n'
        '    password="hunter2";\n'
    )

    arguments = argparse.Namespace(command_config=properties, bootstrap_server=None, cluster=None)
    assert {name: value for name, (value, _) in client_settings(arguments, {}).items()} == {
        "bootstrap.servers": "b:1",
        "client.rack": "r\u00e4ck=1",
        "client.id": "a\x0cb",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="hunter2";',
    }


@pytest.mark.usefixtures("written_config")
def test_precedence_of_the_sources(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """
    Arguments take precedence over the environment, and a properties file over the named cluster.
    """
    monkeypatch.setenv("PYKAFKA_KAFKA_REQUEST_TIMEOUT_MS", "1")
    properties = tmp_path / "client.properties"
    properties.write_text("# comment\nrequest.timeout.ms = 7\n")

    assert settings_of(capsys)["request.timeout.ms"] == "1"
    staging = settings_of(capsys, "--cluster", "staging")
    assert (staging["bootstrap.servers"], staging["request.timeout.ms"]) == ("staging:9092", "5000")
    arguments = ["--cluster", "staging", "--command-config", str(properties)]
    assert settings_of(capsys, *arguments)["request.timeout.ms"] == "7"
    assert (
        settings_of(capsys, *arguments, "--bootstrap-server", "b:1")["bootstrap.servers"] == "b:1"
    )


@pytest.mark.parametrize(
    ("seconds", "timeouts", "request_ms"),
    [
        (None, {}, None),
        (10, {}, "10000"),
        (90, {}, "30000"),
        (1, {}, "2000"),
        (10, {"request.timeout.ms": "5000"}, "5000"),
        (10, {"request.timeout.ms": "60000"}, "10000"),
    ],
)
def test_timeout_limits_single_requests_too(
    seconds: float | None, timeouts: dict[str, str], request_ms: str | None
) -> None:
    """
    A request without a response must not outlast --timeout; a shorter setting remains.
    """
    options = {f"kafka.{name}": value for name, value in timeouts.items()}

    limited = with_timeout(options, argparse.Namespace(timeout=seconds))

    assert limited.get("kafka.request.timeout.ms") == request_ms
    total_ms = None if seconds is None else str(seconds * 1000)
    assert limited.get("kafka.default.api.timeout.ms") == total_ms


def test_sources_are_named(capsys: pytest.CaptureFixture[str], written_config: Path) -> None:
    """
    Each setting is shown with the file, the variable or the argument that it comes from.
    """
    main(["config", "--cluster", "staging"])

    output = capsys.readouterr().out
    assert f"{written_config} [clusters.staging]" in output
    assert f"Configuration file: {written_config}\n" in output


def test_a_command_uses_the_configuration(
    capsys: pytest.CaptureFixture[str], config_file: Path
) -> None:
    """
    A command without arguments for brokers reaches those of the configuration file.
    """
    config_file.parent.mkdir()
    with StubCluster(Behaviour(topics={"t": 1})) as cluster:
        config_file.write_text(f"[clusters.default]\nbootstrap.servers='{cluster.bootstrap}'\n")
        config_file.chmod(0o600)
        code = main(["topic", "describe", "t", "--json"])

    assert (code, json.loads(capsys.readouterr().out)["topic"]) == (ExitCode.DONE, "t")


def test_a_readable_file_is_reported(
    capsys: pytest.CaptureFixture[str], written_config: Path
) -> None:
    """
    A file that other users can read is reported, with the command that protects it.
    """
    written_config.chmod(0o644)

    main(["config"])

    assert f"can be read by other users; use: chmod 600 {written_config}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--cluster", "prod"], "it must be a cluster of {file}: default, staging"),
        (["--command-config", "/no/such/file"], "--command-config cannot be read"),
        (["--command-config", sys.executable], "--command-config cannot be read"),
    ],
)
def test_wrong_sources_are_errors(
    capsys: pytest.CaptureFixture[str], written_config: Path, arguments: list[str], text: str
) -> None:
    """
    The error names the argument; for an unknown cluster it lists the configured ones.
    """
    assert main(["config", *arguments]) == ExitCode.WRONG_ARGUMENTS
    assert text.format(file=written_config) in capsys.readouterr().err


@pytest.mark.parametrize("text", ["no toml", "clusters = 3", "[clusters]\ndefault = 3"])
def test_a_malformed_file_is_an_error(
    capsys: pytest.CaptureFixture[str], config_file: Path, text: str
) -> None:
    """
    The error names the file.
    """
    config_file.parent.mkdir()
    config_file.write_text(text)

    assert main(["config"]) == ExitCode.WRONG_ARGUMENTS
    assert str(config_file) in capsys.readouterr().err


def test_doctor_reports_a_malformed_file(
    capsys: pytest.CaptureFixture[str], config_file: Path
) -> None:
    """
    A malformed configuration file is one finding beside those on the machine.
    """
    config_file.parent.mkdir()
    config_file.write_text("no toml")

    assert main(["doctor", "--json"]) == ExitCode.FAILED
    output = capsys.readouterr()
    *machine, last = json.loads(output.out)["findings"]
    assert (output.err, last["status"]) == ("", "failed")
    assert str(config_file) in last["text"]
    assert {"python", "spark"} <= {finding["check"] for finding in machine}


def test_no_brokers_at_all(capsys: pytest.CaptureFixture[str], config_file: Path) -> None:
    """
    The error names the three ways to give brokers: arguments, the file, and a variable.
    """
    assert main(["topic", "describe", "t"]) == ExitCode.WRONG_ARGUMENTS
    error = capsys.readouterr().err
    assert "use --bootstrap-server, or --cluster" in error
    assert str(config_file) in error
    assert "PYKAFKA_KAFKA_BOOTSTRAP_SERVERS" in error


def test_the_file_on_the_page(capsys: pytest.CaptureFixture[str], config_file: Path) -> None:
    """
    The file on the page has a default cluster with a login, and a second cluster without a login.
    """
    (text,) = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    config_file.parent.mkdir()
    config_file.write_text(text)
    config_file.chmod(0o600)

    default = settings_of(capsys)
    staging = settings_of(capsys, "--cluster", "staging")

    assert default["bootstrap.servers"] == "broker:9093"
    assert default["sasl.mechanism"] == "SCRAM-SHA-512"
    assert "..." not in default.values()
    assert staging["bootstrap.servers"] == "staging:9092"
    assert not [name for name in staging if name.startswith("sasl.")]
