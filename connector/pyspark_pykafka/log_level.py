"""
Shows the connector's log on stderr, from the level in the environment variable ``PYKAFKA_LOG`` on.

Spark plans a query, and runs its tasks, in separate Python processes. Nothing configures logging
there, so Python shows only warnings and errors, and the driver program cannot change that. But the
processes inherit the environment of the driver or the executor.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "PYKAFKA_LOG"
_LEVELS = ("debug", "info", "warning", "error")
# Spark's layout (log4j2-defaults.properties): the lines are among those of the driver or executor.
_LAYOUT = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%y/%m/%d %H:%M:%S")

logger = logging.getLogger("pyspark_pykafka")


def apply_log_level(environment: Mapping[str, str]) -> None:
    """
    Log to stderr from the variable's level on; without the variable, do nothing.

    A wrong value is logged, not raised: Spark finds the format by importing the package, and would
    only report that the format does not exist.
    """
    level = environment.get(VARIABLE, "").strip()
    if not level:
        return
    if level.lower() not in _LEVELS:
        *others, last = _LEVELS
        logger.warning("%s is %r; it must be %s or %s", VARIABLE, level, ", ".join(others), last)
        return
    logger.setLevel(level.upper())
    handler = logging.StreamHandler()
    handler.setFormatter(_LAYOUT)
    handler.addFilter(_is_unconfigured)
    logger.addHandler(handler)


def _is_unconfigured(_record: logging.LogRecord) -> bool:
    """
    Return whether no other handler gets the record: otherwise its line would be shown twice.

    The root logger has a handler if a program configures logging, and if Spark collects the logs of
    its workers (``spark.sql.pyspark.worker.logging.enabled``).
    """
    return not logging.getLogger().handlers
