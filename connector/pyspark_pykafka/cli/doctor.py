"""
`pykafka doctor`: checks the prerequisites of a query, and reports how to correct failures.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

from pyspark_pykafka.cli.arguments import (
    add_brokers,
    add_json,
    add_settings,
    broker_options,
    registry_options,
)
from pyspark_pykafka.cli.client_config import BOOTSTRAP, client_settings
from pyspark_pykafka.cli.command import Command
from pyspark_pykafka.cli.exit_codes import ExitCode
from pyspark_pykafka.cli.output import escaped, print_json
from pyspark_pykafka.doctor.finding import Finding, Status, skipped
from pyspark_pykafka.doctor.machine import check_machine, spark_defaults
from pyspark_pykafka.doctor.redaction import check_redaction
from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.options import parse_stream_source

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pyspark_pykafka.cli.client_config import Settings

_MARKS = {
    Status.OK: "ok     ",
    Status.WARNING: "WARNING",
    Status.FAILED: "FAILED ",
    Status.SKIPPED: "skipped",
}


def _doctor(arguments: argparse.Namespace) -> int:
    findings = []
    for finding in _findings(arguments):
        findings.append(finding)
        if not arguments.json:
            _print(finding)
    counts = Counter(finding.status for finding in findings)
    if arguments.json:
        print_json({"findings": [asdict(finding) for finding in findings], "counts": counts})
    else:
        print(", ".join(f"{counts[status]} {status}" for status in Status if counts[status]))
    return ExitCode.FAILED if counts[Status.FAILED] else ExitCode.DONE


def _findings(arguments: argparse.Namespace) -> Iterator[Finding]:
    spark_settings = {**spark_defaults(), **dict(arguments.conf)}
    yield from check_machine(spark_settings)
    try:
        settings = client_settings(arguments)
    except OptionsError as error:
        yield from _mistakes(error)
        return
    redaction = check_redaction(spark_settings, _login_options(arguments, settings))
    if redaction is not None:
        yield redaction
    if BOOTSTRAP not in settings:
        advice = "give --bootstrap-server or --cluster to check the brokers, too"
        yield skipped("brokers", "no brokers are given", advice)
        return
    # Imported here: these modules load a Kafka client, which the checks of the machine do not need.
    from pyspark_pykafka.doctor.cluster import CheckInput, check_cluster
    from pyspark_pykafka.doctor.permissions import Needs

    try:
        kafka = parse_stream_source({**broker_options(arguments), "subscribePattern": "."}).kafka
    except OptionsError as error:
        yield from _mistakes(error)
        return
    needs = Needs(tuple(arguments.read), tuple(arguments.write), arguments.group, arguments.prefix)
    yield from check_cluster(CheckInput(kafka, needs))


def _mistakes(error: OptionsError) -> Iterator[Finding]:
    for mistake in error.mistakes:
        yield Finding("kafka settings", Status.FAILED, mistake, "correct the setting")


def _login_options(arguments: argparse.Namespace, settings: Settings) -> dict[str, str]:
    """
    Return the login settings of the brokers and the registry, by the names of their options.
    """
    registry = registry_options(arguments)
    others = settings.keys() - registry.keys()
    return {**registry, **{f"kafka.{name}": settings[name].value for name in others}}


def _print(finding: Finding) -> None:
    text = escaped(finding.text, keep="\n")
    print(f"{_MARKS[finding.status]}  {finding.check}: {text}", flush=True)
    if finding.advice:
        print(f"         -> {finding.advice}", flush=True)


def _add_doctor_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--read", action="append", default=[], metavar="TOPIC", help="a topic that a query reads"
    )
    parser.add_argument(
        "--write", action="append", default=[], metavar="TOPIC", help="a topic that a query writes"
    )
    parser.add_argument("--group", help="a query's kafka.group.id")
    parser.add_argument("--prefix", help="an exactly-once write's transactionalIdPrefix")
    add_settings(
        parser, "--conf", "a Spark setting of the query, in addition to spark-defaults.conf"
    )
    add_brokers(parser)
    add_json(parser)


DOCTOR = Command(
    "doctor",
    "Check this machine, the brokers and the permissions of a query, and advise on failures.",
    _add_doctor_arguments,
    _doctor,
)
