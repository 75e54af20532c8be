"""
A Kafka source and sink for Apache Spark, in Python: ``spark.read.format("pykafka")``.

Every name that users import is available here; ``docs/api.md`` describes each::

    from pyspark_pykafka import RestartPolicy, supervise

A name's module is imported when the name is first used. Spark imports this package in four kinds of
short-lived processes, and executors never need the auditor or the restart policy.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.log_level import apply_log_level

if TYPE_CHECKING:
    from pyspark_pykafka.audit.observer import AuditListener, Auditor
    from pyspark_pykafka.failures.bisection import PoisonPolicy
    from pyspark_pykafka.failures.dead_letters import DeadLetterTopic
    from pyspark_pykafka.failures.foreach_batch import isolate_poison
    from pyspark_pykafka.failures.restarts import RestartPolicy, supervise
    from pyspark_pykafka.metrics.listener import MetricsListener
    from pyspark_pykafka.progress.listener import ProgressListener
    from pyspark_pykafka.spark.datasource import DefaultSource, register
    from pyspark_pykafka.spark.topic_views import mount

__all__ = [
    "AuditListener",
    "Auditor",
    "DeadLetterTopic",
    "DefaultSource",
    "MetricsListener",
    "PoisonPolicy",
    "ProgressListener",
    "RestartPolicy",
    "isolate_poison",
    "mount",
    "register",
    "supervise",
]

__version__ = "0.1.0"

_MODULES = {
    "AuditListener": "audit.observer",
    "Auditor": "audit.observer",
    "DeadLetterTopic": "failures.dead_letters",
    "DefaultSource": "spark.datasource",
    "MetricsListener": "metrics.listener",
    "PoisonPolicy": "failures.bisection",
    "ProgressListener": "progress.listener",
    "RestartPolicy": "failures.restarts",
    "isolate_poison": "failures.foreach_batch",
    "mount": "spark.topic_views",
    "register": "spark.datasource",
    "supervise": "failures.restarts",
}

# Every process of a query imports the package before it logs anything.
apply_log_level(os.environ)


def __getattr__(name: str) -> Any:
    """
    Import a public name on its first use (PEP 562); later uses find it in the module.
    """
    if name not in _MODULES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg, name=name)
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """
    Return the module's names, including public names that are not imported yet.
    """
    return sorted(globals().keys() | __all__)
