"""
Translates settings, by the Java client's names or librdkafka's, into librdkafka's properties.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_pykafka.settings.checks import check_combination, check_value, warnings_about
from pyspark_pykafka.settings.jaas import JaasError, read_jaas
from pyspark_pykafka.settings.keystores import STORE_NAMES, translate_keystores
from pyspark_pykafka.settings.properties import ALIASES, PROPERTIES, Role
from pyspark_pykafka.settings.rules import (
    CONNECTOR_SETTINGS,
    IGNORED,
    JAVA_ALIASES,
    LEVELS,
    REJECTED,
)
from pyspark_pykafka.settings.values import redacted_value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_pykafka.settings.values import KafkaSettings

_JAAS = "sasl.jaas.config"

#: Every known name, including those of ignored and rejected settings; messages about misspelt names
#: suggest one of them.
KNOWN_NAMES: frozenset[str] = (
    frozenset(PROPERTIES)
    | frozenset(ALIASES)
    | frozenset(JAVA_ALIASES)
    | frozenset(LEVELS)
    | frozenset(CONNECTOR_SETTINGS)
    | frozenset(REJECTED)
    | IGNORED
    | STORE_NAMES
    | {_JAAS, "partitioner.class", "partitioner.ignore.keys"}
)


@dataclass(frozen=True, slots=True, repr=False)
class Translation:
    """
    librdkafka's properties for one role, the ignored settings, mistakes and warnings.
    """

    properties: dict[str, str]
    ignored: tuple[str, ...]
    mistakes: tuple[str, ...]
    warnings: tuple[str, ...]


def translate(settings: KafkaSettings, role: Role) -> Translation:
    """
    Return the translation for a client of this role; ``ANY`` stands for the admin client.
    """
    draft = _Draft(role)
    stores = {name: value for name, value in settings.pairs if name in STORE_NAMES}
    for name, value in settings.pairs:
        if name not in STORE_NAMES:
            draft.add(name, value)
    draft.add_stores(stores)
    draft.resolve()
    draft.mistakes += check_combination(draft.properties, role)
    return Translation(
        draft.properties,
        tuple(draft.ignored),
        tuple(draft.mistakes),
        tuple(warnings_about(draft.properties)),
    )


@dataclass(slots=True, repr=False)
class _Draft:
    """
    A translation in progress; ``sources`` maps librdkafka's names to the user's.
    """

    role: Role
    properties: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    fallbacks: dict[str, str] = field(default_factory=dict)
    levels: dict[str, tuple[str, str]] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    mistakes: list[str] = field(default_factory=list)

    def add(self, name: str, value: str) -> None:
        """
        Add one setting; most settings are librdkafka's, or differ from librdkafka's only in name.
        """
        special = self._special().get(name)
        if name in REJECTED:
            self._reject(name)
        elif name in IGNORED:
            self.ignored.append(name)
        elif name in CONNECTOR_SETTINGS:
            self._check_connector_setting(name, value)
        elif special is not None:
            special(name, value)
        elif name in JAVA_ALIASES:
            self._rename(name, value)
        elif ALIASES.get(name, name) in PROPERTIES:
            self.put(ALIASES.get(name, name), value, name)
        else:
            self.mistakes.append(_unknown_setting(name))

    def put(self, name: str, value: str, source: str) -> None:
        """
        Set a property of librdkafka for this role; ``source`` is the user's name for it.
        """
        if not PROPERTIES[name].serves(self.role):
            self.ignored.append(source)
            return
        normalised, mistake = check_value(PROPERTIES[name], value, source)
        if mistake is not None:
            self.mistakes.append(mistake)
        elif name in self.properties and self.properties[name] != normalised:
            earlier = self.sources[name]
            self.mistakes.append(
                f"kafka.{source} and kafka.{earlier} are two names of one setting and differ; "
                "give one of them"
            )
        else:
            self.properties[name] = normalised
            self.sources[name] = source

    def add_stores(self, stores: Mapping[str, str]) -> None:
        """
        Add the key store and the trust store, each described by several settings.
        """
        translated, mistakes = translate_keystores(stores)
        self.mistakes += mistakes
        for name, value in translated.items():
            kind = "trust" if name == "ssl.ca.location" else "key"
            self.put(name, value, f"ssl.{kind}store.location")

    def resolve(self) -> None:
        """
        Apply the rules that depend on several settings.

        The user's socket timeout takes precedence over Java's request timeout. Java's compression
        levels apply to their own codec only. The password of a key store that became PEM files is
        dropped.
        """
        self.properties = {**self.fallbacks, **self.properties}
        level = self.levels.get(self.properties.get("compression.type", "none"))
        if level is not None:
            self.put("compression.level", *level)
        if "ssl.keystore.location" not in self.properties:
            self.properties.pop("ssl.keystore.password", None)

    def _special(self) -> Mapping[str, Callable[[str, str], None]]:
        levels: dict[str, Callable[[str, str], None]] = dict.fromkeys(LEVELS, self._add_level)
        return {
            **levels,
            _JAAS: self._add_jaas,
            "request.timeout.ms": self._add_request_timeout,
            "partitioner.class": self._add_partitioner_class,
            "partitioner.ignore.keys": self._add_ignore_keys,
        }

    def _reject(self, name: str) -> None:
        role, reason = REJECTED[name]
        if role in (Role.ANY, self.role):
            self.mistakes.append(f"kafka.{name} is not supported: {reason}")
        else:
            self.ignored.append(name)

    def _check_connector_setting(self, name: str, value: str) -> None:
        if not value.strip().isdecimal():
            self.mistakes.append(
                f"kafka.{name} is {redacted_value(name, value)}; it must be: a number of "
                "milliseconds"
            )

    def _rename(self, name: str, value: str) -> None:
        target, convert = JAVA_ALIASES[name]
        try:
            converted = convert(value)
        except ValueError:
            self.mistakes.append(
                f"kafka.{name} is {redacted_value(name, value)}; it must be: a whole number"
            )
            return
        self.put(target, converted, name)

    def _add_jaas(self, name: str, value: str) -> None:
        try:
            credentials = read_jaas(value)
        except JaasError as cause:
            self.mistakes.append(f"kafka.{name} cannot be used: {cause}")
            return
        for target, text in credentials.items():
            self.put(target, text, name)

    def _add_request_timeout(self, name: str, value: str) -> None:
        # Two properties in librdkafka: the broker's timeout in a Produce request, and the socket's.
        normalised, mistake = check_value(PROPERTIES["socket.timeout.ms"], value, name)
        if mistake is not None:
            self.mistakes.append(mistake)
            return
        if self.role is Role.PRODUCER:
            self.put(name, normalised, name)
        self.fallbacks["socket.timeout.ms"] = normalised

    def _add_level(self, name: str, value: str) -> None:
        self.levels[LEVELS[name]] = (value, name)

    def _add_partitioner_class(self, name: str, value: str) -> None:
        if value.strip().endswith(".DefaultPartitioner"):
            self.put("partitioner", "murmur2_random", name)
        elif self.role is Role.PRODUCER:
            self.mistakes.append(
                f"kafka.{name} is not supported: there is no JVM to load the class in; choose one "
                "of librdkafka's partitioners with kafka.partitioner, or give the rows a partition "
                "column"
            )

    def _add_ignore_keys(self, name: str, value: str) -> None:
        if value.strip().lower() == "true":
            self.put("partitioner", "random", name)


def _unknown_setting(name: str) -> str:
    names = sorted(KNOWN_NAMES - frozenset(REJECTED))
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.75)
    hint = f"did you mean 'kafka.{near[0]}'?" if near else "see docs/options.md for the known ones"
    return f"'kafka.{name}' is not a setting of the Kafka client; {hint}"
