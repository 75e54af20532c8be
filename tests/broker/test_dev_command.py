"""
`pykafka dev` runs a broker in the foreground until it is interrupted.
"""

from __future__ import annotations

import re
import signal
import subprocess

import pytest
from tests.support.dev_command import DEV, read_address, start_dev
from tests.support.listening import listen
from tests.support.processes import broker_processes

from pyspark_pykafka.testing import ExternalCluster, Record


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)]
)
def test_dev_prints_the_address_and_stops_cleanly(number: signal.Signals) -> None:
    """
    The printed address accepts clients; Ctrl-C and SIGTERM end the command without an error.
    """
    options = ["--zookeeper"] if number == signal.SIGINT else []
    with subprocess.Popen([*DEV, *options], stdout=subprocess.PIPE, text=True) as dev:
        assert dev.stdout is not None
        greeting = ""
        # Also ends when the command does, so that a changed text cannot block the test.
        while "Ctrl-C" not in greeting and (line := dev.stdout.readline()):
            greeting += line
        assert greeting.endswith("\nCtrl-C stops it and deletes all its data.\n")
        match = re.search(r"Kafka is ready: +(127\.0\.0\.1:\d+)\n", greeting)
        assert match is not None
        kafka = ExternalCluster(match.group(1)).start()
        assert kafka.produce(kafka.create_topic("made"), [Record(b"value")])[0].offset == 0
        assert ("ZooKeeper is ready:" in greeting) == bool(options)
        dev.send_signal(number)
        output, _ = dev.communicate(timeout=30)
    assert output == "Stopped; topics and data are gone.\n"
    assert dev.returncode == 0


# tests/unit/cli/test_dev.py has brokers that end, without servers.
@pytest.mark.soak
def test_broker_that_is_killed_by_hand_comes_back() -> None:
    """
    If one of three brokers is killed, the others continue, and `pykafka dev` restarts it.
    """
    with start_dev("--brokers", "3") as dev:
        address = read_address(dev.stdout)
        brokers = broker_processes(dev.pid)
        assert len(brokers) == 3
        brokers[1].kill()
        assert dev.stderr is not None
        first_lines = [dev.stderr.readline() for _ in range(2)]
        ExternalCluster(address).start()
        dev.send_signal(signal.SIGINT)
        output, errors = dev.communicate(timeout=60)
    assert re.fullmatch(
        r"pykafka dev: broker (\d) ended with exit code -9, restarting it in 10 s\n"
        r"pykafka dev: broker \1 is back\n",
        "".join(first_lines),
    )
    assert (output, errors, dev.returncode) == ("Stopped; topics and data are gone.\n", "", 0)


def test_dev_reports_a_port_in_use_at_once() -> None:
    """
    A port that another program listens on is named before anything is downloaded or started.
    """
    with listen() as other:
        port = str(other.getsockname()[1])
        result = subprocess.run(
            [*DEV, "--port", port], capture_output=True, text=True, timeout=8, check=False
        )
    assert result.returncode == 1
    assert result.stderr == (
        f"pykafka dev: Port {port} is in use; choose another one, or stop what listens there.\n"
    )


# tests/unit/cli/test_dev.py has this error; test_jars.py has the download that fails.
@pytest.mark.soak
def test_dev_reports_errors_without_a_traceback() -> None:
    """
    An unknown Kafka version prints one message and exits with code 1.
    """
    result = subprocess.run(
        [*DEV, "--version", "9.9.9"], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 1
    assert result.stderr.startswith(
        "pykafka dev: The jars for kafka-9.9.9 could not be downloaded."
    )
    assert "Traceback" not in result.stderr
