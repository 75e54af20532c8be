"""
Reads one query's options: checks their names, parses their values and collects every mistake.
"""

from __future__ import annotations

import difflib
import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.options.option import SCOPE_NAMES, Option, Scope, scope_names
from pyspark_pykafka.options.table import (
    ASSIGN,
    BY_KEY,
    SINK_TOPIC,
    SPARK_OPTIONS,
    SUBSCRIBE,
    SUBSCRIBE_PATTERN,
)
from pyspark_pykafka.options.value_parsers import InvalidOptionError
from pyspark_pykafka.settings import KNOWN_NAMES, KafkaSettings, Role, translate

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")

logger = logging.getLogger("pyspark_pykafka")

_PREFIX = "kafka."
_DELEGATION_TOKENS = "spark.kafka.clusters."
_MAX_VALUE_LENGTH = 200


class OptionReader:
    """
    The options of one query; :meth:`raise_mistakes` reports all mistakes in one error.

    ``scope`` may be several kinds of query while the kind is not known yet: then only options that
    are wrong in all of them are mistakes, and nothing is logged.
    """

    def __init__(self, options: Mapping[str, str | None], scope: Scope) -> None:
        self.mistakes: list[str] = []
        self._scope = scope
        self._texts = {
            name.strip().lower(): str(text) for name, text in options.items() if text is not None
        }
        # A temporary view in SQL that is read and written has one set of options for both.
        self._is_for_both = SINK_TOPIC.key in self._texts and any(
            option.key in self._texts for option in (ASSIGN, SUBSCRIBE, SUBSCRIBE_PATTERN)
        )
        for key in sorted(self._texts):
            if key not in SPARK_OPTIONS and not key.startswith(_PREFIX):
                self._check_name(key)

    def has(self, option: Option[T]) -> bool:
        """
        Whether the option is set and applies to this kind of query.
        """
        return option.key in self._texts and bool(option.scope & self._scope)

    def find(self, option: Option[T]) -> T | None:
        """
        Return the option's value or its default, or None if it has neither.

        If the value is invalid, add a text to ``mistakes`` and return the default.
        """
        default = option.default_in(self._scope)
        if self.has(option):
            try:
                return option.parser(self._texts[option.key])
            except InvalidOptionError as cause:
                text = "***" if option.secret else _short(self._texts[option.key])
                self.mistakes.append(f"{option.name} is '{text}'; {cause}")
        return None if default is None else option.parser(default)

    def get(self, option: Option[T]) -> T:
        """
        Return the option's value or its default; raise LookupError if it has neither.
        """
        value = self.find(option)
        if value is None:
            msg = f"the option {option.name} has no default in the option table"
            raise LookupError(msg)
        return value

    def kafka_settings(self, role: Role) -> KafkaSettings:
        """
        Return the ``kafka.*`` settings, after checking that a client accepts them.
        """
        settings = self._kafka_settings()
        if not settings.get("bootstrap.servers", "").strip():
            self.mistakes.append(
                "kafka.bootstrap.servers is missing; set it to the brokers' addresses, "
                "such as 'host:9092,host2:9092'"
            )
            settings = KafkaSettings(
                tuple(pair for pair in settings.pairs if pair[0] != "bootstrap.servers")
            )
        translation = translate(settings, role)
        self.mistakes += translation.mistakes
        if self._scope in SCOPE_NAMES:
            log_settings(translation.ignored, translation.warnings)
        return settings

    def check_kafka_settings(self, role: Role) -> None:
        """
        Check that another client of the same query accepts the ``kafka.*`` settings, too.
        """
        self.mistakes += translate(self._kafka_settings(), role).mistakes

    def _kafka_settings(self) -> KafkaSettings:
        return KafkaSettings.of(
            {
                key.removeprefix(_PREFIX): text
                for key, text in self._texts.items()
                if key.startswith(_PREFIX)
            }
        )

    def raise_mistakes(self) -> None:
        """
        Raise :class:`OptionsError` with all mistakes, if there are any.
        """
        if self.mistakes:
            raise OptionsError(tuple(dict.fromkeys(self.mistakes)))

    def _check_name(self, key: str) -> None:
        option = BY_KEY.get(key)
        if option is None:
            self.mistakes.append(_unknown(key))
        elif self._scope in option.no_effect:
            log_no_effect(option.name, scope_names(self._scope))
        elif not option.scope & self._scope and not self._is_of_other_direction(option):
            self.mistakes.append(
                f"'{option.name}' is not valid in a {scope_names(self._scope)}; "
                f"it applies to: {scope_names(option.scope)}"
            )

    def _is_of_other_direction(self, option: Option[Any]) -> bool:
        """
        Whether the options belong to a view for reading and writing, and this option is for the
        other direction. Streaming queries have no such views.
        """
        if not self._is_for_both:
            return False
        if self._scope & Scope.BATCH_READ:
            return not option.scope & Scope.READ
        return bool(self._scope & Scope.BATCH_WRITE) and not option.scope & Scope.WRITE


def _short(text: str) -> str:
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}..."


def _unknown(key: str) -> str:
    if key.startswith(_DELEGATION_TOKENS):
        return (
            f"'{key}' is not supported: librdkafka cannot use delegation tokens; set the "
            "credentials with kafka.sasl.* and kafka.ssl.* options"
        )
    if key in KNOWN_NAMES:
        return f"'{key}' is not an option; did you mean '{_PREFIX}{key}'?"
    candidates = {lowered: option.name for lowered, option in BY_KEY.items()}
    candidates.update({_PREFIX + name: _PREFIX + name for name in KNOWN_NAMES})
    near = difflib.get_close_matches(key, list(candidates), n=1, cutoff=0.7)
    hint = f"did you mean '{candidates[near[0]]}'?" if near else "docs/options.md lists all options"
    return f"'{key}' is not an option; {hint}"


# Spark parses the same options repeatedly, in several processes; each process logs this once.
@lru_cache(maxsize=64)
def log_no_effect(name: str, query: str) -> None:
    """
    Log that an option has no effect in this kind of query.
    """
    logger.warning("Option %s has no effect in a %s", name, query)


@lru_cache(maxsize=64)
def log_settings(ignored: tuple[str, ...], warnings: tuple[str, ...]) -> None:
    """
    Log the names (never the values) of ignored client settings, and warnings about unsafe ones.
    """
    if ignored:
        logger.info("Kafka settings without effect: %s", ", ".join(ignored))
    for warning in warnings:
        logger.warning("%s", warning)
