"""
The brokers and the login of a command, from arguments, environment variables or a configuration
file.

Secrets need not be on the command line, where everyone who can list processes sees them.
"""

from __future__ import annotations

import os
import stat
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_pykafka.errors import OptionsError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

#: The prefix of environment variables. A setting's name follows, in capitals, with underscores for
#: dots.
PREFIX = "PYKAFKA_KAFKA_"
#: The environment variable with the path of another configuration file.
FILE_VARIABLE = "PYKAFKA_CONFIG"
DEFAULT_CLUSTER = "default"
BOOTSTRAP = "bootstrap.servers"

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Setting(NamedTuple):
    """
    The value of a client setting, and where it comes from.
    """

    value: str
    source: str


Settings = dict[str, Setting]


def client_settings(
    arguments: argparse.Namespace, environment: Mapping[str, str] | None = None
) -> Settings:
    """
    Return the settings, without the prefix `kafka.`.

    The sources are, from the lowest precedence to the highest: the default cluster of the
    configuration file (only if no other source names brokers), environment variables (left out if
    they name brokers and `--cluster` is given), the cluster of `--cluster`, the file of
    `--command-config`, `--bootstrap-server`.
    """
    environment = os.environ if environment is None else environment
    from_arguments = {**file_settings(arguments.command_config), **_from_argument(arguments)}
    variables = _from_environment(environment)
    if arguments.cluster is not None:
        named = _cluster(arguments.cluster, environment)
        if BOOTSTRAP in variables:
            # The variables are the settings of another cluster, perhaps with its login.
            variables = {}
        settings = {**variables, **named, **from_arguments}
        if BOOTSTRAP not in settings:
            path = config_path(environment)
            msg = f"the cluster '{arguments.cluster}' of {path} has no {BOOTSTRAP}; add it there"
            raise OptionsError((msg,))
        return settings
    settings = {**variables, **from_arguments}
    if BOOTSTRAP in settings:
        return settings
    return {**_default_cluster(environment), **settings}


def require_brokers(settings: Settings, environment: Mapping[str, str] | None = None) -> None:
    """
    Raise :class:`OptionsError` if no setting names brokers.
    """
    environment = os.environ if environment is None else environment
    if BOOTSTRAP not in settings:
        msg = (
            "no brokers are given; use --bootstrap-server, or --cluster with a cluster of "
            f"{config_path(environment)}, or set {PREFIX}BOOTSTRAP_SERVERS"
        )
        raise OptionsError((msg,))


def config_path(environment: Mapping[str, str]) -> Path:
    """
    Return the path of the configuration file, which need not exist.
    """
    if path := environment.get(FILE_VARIABLE):
        return Path(path).expanduser()
    home = environment.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "pykafka" / "config.toml"


def _from_argument(arguments: argparse.Namespace) -> Settings:
    servers = arguments.bootstrap_server
    return {} if servers is None else {BOOTSTRAP: Setting(servers, "--bootstrap-server")}


def _from_environment(environment: Mapping[str, str]) -> Settings:
    return {
        name.removeprefix(PREFIX).lower().replace("_", "."): Setting(value, name)
        for name, value in environment.items()
        if name.startswith(PREFIX)
    }


def file_settings(path: Path | None) -> Settings:
    """
    Return the settings of a properties file, if one is given.

    The format is that of `java.util.Properties`, in UTF-8. Blanks after a value, which Java keeps,
    are removed.
    """
    if path is None:
        return {}
    # Imported here, since most commands have no such file.
    import javaproperties

    try:
        pairs = javaproperties.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as cause:
        raise OptionsError((f"--command-config cannot be read: {cause}",)) from cause
    return {name: Setting(value.rstrip(), str(path)) for name, value in pairs.items()}


def _default_cluster(environment: Mapping[str, str]) -> Settings:
    path = config_path(environment)
    if not path.exists() and FILE_VARIABLE not in environment:
        return {}
    clusters = _clusters(path)
    return _section(path, clusters, DEFAULT_CLUSTER) if DEFAULT_CLUSTER in clusters else {}


def _cluster(name: str, environment: Mapping[str, str]) -> Settings:
    path = config_path(environment)
    clusters = _clusters(path)
    if name not in clusters:
        names = ", ".join(sorted(clusters)) or "none"
        raise OptionsError((f"--cluster is '{name}'; it must be a cluster of {path}: {names}",))
    return _section(path, clusters, name)


def _clusters(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text())
    except (OSError, ValueError) as cause:
        msg = f"the configuration file {path} cannot be read: {cause}"
        raise OptionsError((msg,)) from cause
    clusters = document.get("clusters", {})
    if not isinstance(clusters, dict) or not all(isinstance(c, dict) for c in clusters.values()):
        raise OptionsError((f"the clusters of {path} must be tables, such as [clusters.default]",))
    return clusters


def _section(path: Path, clusters: Mapping[str, Any], name: str) -> Settings:
    if path.stat().st_mode & _OTHERS:
        print(f"{path} can be read by other users; use: chmod 600 {path}", file=sys.stderr)
    source = f"{path} [clusters.{name}]"
    return {key: Setting(text, source) for key, text in _flat(clusters[name])}


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """
    Yield settings by their full names; TOML parses `sasl.username = "x"` as nested tables.
    """
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value).lower() if isinstance(value, bool) else str(value)
