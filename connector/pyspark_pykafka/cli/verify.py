"""
`pykafka verify`: checks the delivery guarantee on the user's cluster, with the user's settings,
under faults.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
import traceback
from typing import TYPE_CHECKING

from pyspark_pykafka.cli.arguments import (
    add_bootstrap,
    add_client_settings,
    add_json,
    broker_options,
    whole_number,
    with_timeout,
)
from pyspark_pykafka.cli.client_config import file_settings
from pyspark_pykafka.cli.command import Command
from pyspark_pykafka.cli.output import discard_output
from pyspark_pykafka.errors import OptionsError, PykafkaError, error_text
from pyspark_pykafka.testing import FetchError, JavaNotFoundError, KafkaCluster, ServerError

if TYPE_CHECKING:
    from pyspark_pykafka.verify.nemesis import Nemesis
    from pyspark_pykafka.verify.report import Report
    from pyspark_pykafka.verify.run import RunArguments

CANNOT_RUN = 2
MAX_RECORDS = 10_000_000
NEMESIS_BROKERS = 3
_BROKER_DEFAULT = -1


def _verify(arguments: argparse.Namespace) -> int:
    try:
        report = _run(arguments)
    except (PykafkaError, ServerError, FetchError, JavaNotFoundError) as error:
        text = "; ".join(error.mistakes) if isinstance(error, OptionsError) else str(error)
        return _report_void(text, arguments)
    except BrokenPipeError:
        raise
    except OSError as error:
        # For example, the disk of the checkpoint or of Spark's files is full.
        return _report_void(error_text(error), arguments)
    except Exception as error:  # noqa: BLE001 (Python's exit code, 1, would mean an anomaly)
        traceback.print_exc()
        return _report_void(
            f"unexpected error: {type(error).__name__}: {error_text(error)}", arguments
        )
    text = json.dumps(report.to_json(), indent=2) if arguments.json else "\n".join(report.lines())
    return _print(text, report.exit_code)


def _print(text: str, code: int) -> int:
    """
    Print the report and return the exit code.

    If the report cannot be written, as on a full disk, the exit code of an anomaly stays, but a
    clean run counts as void.
    """
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_output()
        print(f"pykafka verify: the report cannot be written: {error}", file=sys.stderr)
        return code or CANNOT_RUN
    return code


def _report_void(reason: str, arguments: argparse.Namespace) -> int:
    print(f"pykafka verify: {reason}", file=sys.stderr)
    if arguments.json:
        return _print(json.dumps({"verdict": "void", "error": reason}, indent=2), CANNOT_RUN)
    return CANNOT_RUN


def _run(arguments: argparse.Namespace) -> Report:
    if arguments.rate * arguments.seconds > MAX_RECORDS:
        msg = (
            f"--rate times --seconds is {arguments.rate * arguments.seconds}; it must be at most "
            f"{MAX_RECORDS}, since the ids of all records are kept in memory"
        )
        raise OptionsError((msg,))
    if not arguments.nemesis:
        return _make_run(_run_arguments(arguments, broker_options(arguments)), None)
    _print_event(f"starting {NEMESIS_BROKERS} brokers; the jars are downloaded once")
    with contextlib.ExitStack() as servers:
        cluster = servers.enter_context(KafkaCluster(NEMESIS_BROKERS))
        # The environment and the configuration file are ignored: their login is for another
        # cluster.
        settings = file_settings(arguments.command_config)
        options = {f"kafka.{name}": setting.value for name, setting in settings.items()}
        options["kafka.bootstrap.servers"] = cluster.bootstrap
        return _make_run(_run_arguments(arguments, with_timeout(options, arguments)), cluster)


def _make_run(run_arguments: RunArguments, cluster: KafkaCluster | None) -> Report:
    # Imported here: these modules load Spark and a Kafka client.
    from pyspark_pykafka.verify.nemesis import Nemesis
    from pyspark_pykafka.verify.run import verify

    nemesis: Nemesis | None = None if cluster is None else Nemesis(cluster, _print_event)
    return verify(run_arguments, _print_event, nemesis)


def _run_arguments(arguments: argparse.Namespace, options: dict[str, str]) -> RunArguments:
    from pyspark_pykafka.verify.run import RunArguments

    return RunArguments(
        options=options,
        topic_prefix=arguments.topic_prefix,
        partitions=arguments.partitions,
        replication_factor=arguments.replication_factor,
        seconds=arguments.seconds,
        rate=arguments.rate,
        guarantee=arguments.guarantee,
        deadline_seconds=arguments.deadline,
        keep=arguments.keep,
    )


def _print_event(line: str) -> None:
    """
    Print to standard error; standard output is for the report.
    """
    print(line, file=sys.stderr, flush=True)


def _add_verify_arguments(parser: argparse.ArgumentParser) -> None:
    cluster = parser.add_mutually_exclusive_group()
    add_bootstrap(cluster)
    cluster.add_argument(
        "--nemesis",
        action="store_true",
        help=f"start {NEMESIS_BROKERS} brokers here, as pykafka dev does, and kill, pause and "
        "shut them down in turn",
    )
    add_client_settings(parser)
    parser.add_argument(
        "--topic-prefix",
        type=_prefix,
        default="pykafka-verify",
        metavar="TEXT",
        help="prefix of topic names and transactional ids; default: pykafka-verify",
    )
    parser.add_argument(
        "--partitions",
        type=whole_number(1, 1_000),
        default=3,
        help="partitions of each topic; default: 3",
    )
    parser.add_argument(
        "--replication-factor",
        type=whole_number(1, 32_767),
        default=_BROKER_DEFAULT,
        help="replicas of each topic; default: the brokers' default.replication.factor",
    )
    parser.add_argument(
        "--seconds", type=whole_number(1, 86_400), default=60, help="how long to write; default: 60"
    )
    parser.add_argument(
        "--rate", type=whole_number(1, 100_000), default=500, help="records a second; default: 500"
    )
    parser.add_argument(
        "--guarantee", choices=("exactly-once", "at-least-once"), default="exactly-once"
    )
    parser.add_argument(
        "--deadline",
        type=whole_number(1, 86_400),
        default=120,
        metavar="SECONDS",
        help="how long to wait for the last record; default: 120",
    )
    parser.add_argument("--keep", action="store_true", help="leave the topics in place")
    add_json(parser)


def _prefix(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", text):
        msg = f"{text!r} is not valid; it must be 1 to 100 letters, digits, '.', '_' or '-'"
        raise argparse.ArgumentTypeError(msg)
    return text


VERIFY = Command(
    "verify",
    "Send records through your cluster and Spark while you cause faults; report lost records.",
    _add_verify_arguments,
    _verify,
)
