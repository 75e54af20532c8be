"""
Checks that Spark masks the credentials of a query where it prints options.

Spark prints options in the plans of SQL statements with OPTIONS or WITH, and the event log
contains these plans; Spark 4.0 and 4.1 also print the options of a sink in the error of a streaming
query. Spark masks an option if its name or its value matches one of two settings
(``SQLConf.redactOptions``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark_pykafka.doctor.finding import Finding, ok, skipped, warning
from pyspark_pykafka.options.secrets import is_secret

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The settings with their defaults in Spark 4.0 to 4.3.
_REDACTION, _OPTIONS_REDACTION = "spark.redaction.regex", "spark.sql.redaction.options.regex"
_DEFAULTS = {
    _REDACTION: "(?i)secret|password|token|access[.]?key",
    _OPTIONS_REDACTION: "(?i)url",
}

#: With the default of spark.redaction.regex this masks every credential of the connector.
RECOMMENDED = "(?i)url|sasl[.]|ssl[.]|auth|digest"

_CHECK = "logins in plans"


def check_redaction(settings: Mapping[str, str], options: Mapping[str, str]) -> Finding | None:
    """
    Check that Spark's settings mask the secret options; return None if there are none.
    """
    secrets = {name: value for name, value in options.items() if is_secret(name)}
    if not secrets:
        return None
    patterns = {name: settings.get(name, default) for name, default in _DEFAULTS.items()}
    advice = f"set {_OPTIONS_REDACTION} to {RECOMMENDED}"
    try:
        regexes = [re.compile(pattern) for pattern in patterns.values()]
    except re.error as error:
        text = f"{' or '.join(patterns)} cannot be read by Python: {error}"
        return skipped(_CHECK, text, f"check that they match {', '.join(sorted(secrets))}")
    shown = [
        name
        for name, value in sorted(secrets.items())
        if not any(regex.search(name) or regex.search(value) for regex in regexes)
    ]
    if not shown:
        return ok(_CHECK, "Spark masks them")
    text = (
        f"Spark prints {', '.join(shown)} in the plans of SQL statements with options, and Spark "
        "4.0 and 4.1 in the error of a streaming write"
    )
    return warning(_CHECK, text, advice)
