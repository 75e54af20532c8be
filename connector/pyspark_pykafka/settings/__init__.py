"""
The user's ``kafka.*`` settings, and their translation into librdkafka's properties.

Pure: imports no client, so that every mistake is reported when options are parsed.
"""

from __future__ import annotations

from pyspark_pykafka.settings.properties import ALIASES, PROPERTIES, Property, Role
from pyspark_pykafka.settings.rules import (
    CONNECTOR_SETTINGS,
    IGNORED,
    JAVA_ALIASES,
    LEVELS,
    REJECTED,
)
from pyspark_pykafka.settings.translate import KNOWN_NAMES, Translation, translate
from pyspark_pykafka.settings.values import MASK, PRINTABLE, KafkaSettings, redacted_value

__all__ = [
    "ALIASES",
    "CONNECTOR_SETTINGS",
    "IGNORED",
    "JAVA_ALIASES",
    "KNOWN_NAMES",
    "LEVELS",
    "MASK",
    "PRINTABLE",
    "PROPERTIES",
    "REJECTED",
    "KafkaSettings",
    "Property",
    "Role",
    "Translation",
    "redacted_value",
    "translate",
]
