"""
Translates ``sasl.jaas.config``, which only the Java client understands, for librdkafka.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TOKEN = re.compile(
    r"""\s*(?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'"""
    r"""|(?P<mark>[=;])|(?P<word>[^\s=;"']+))""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})

# librdkafka's setting for each option of a login module.
_MODULES: Mapping[str, Mapping[str, str]] = {
    "PlainLoginModule": {"username": "sasl.username", "password": "sasl.password"},
    "ScramLoginModule": {"username": "sasl.username", "password": "sasl.password"},
    "Krb5LoginModule": {
        "keyTab": "sasl.kerberos.keytab",
        "principal": "sasl.kerberos.principal",
        "serviceName": "sasl.kerberos.service.name",
    },
    "OAuthBearerLoginModule": {
        "clientId": "sasl.oauthbearer.client.id",
        "clientSecret": "sasl.oauthbearer.client.secret",
        "scope": "sasl.oauthbearer.scope",
    },
}


class JaasError(ValueError):
    """
    The JAAS configuration cannot be used; the message never quotes it, since it contains passwords.
    """


def read_jaas(text: str) -> dict[str, str]:
    """
    Return librdkafka's settings for ``Module required key="value" ...;``.

    Quotes and escapes have the Java client's meaning. Raises :class:`JaasError`.
    """
    tokens = list(_tokenize(text))
    module, options = _parse_entry(tokens)
    if options.get("tokenauth", "").lower() == "true":
        msg = (
            "it uses a delegation token (tokenauth), which librdkafka does not support; "
            "log in with a user and a password, or OAUTHBEARER"
        )
        raise JaasError(msg)
    names = _setting_names(module)
    credentials = {names[option]: value for option, value in options.items() if option in names}
    if "OAuth" in module and credentials:
        credentials["sasl.oauthbearer.method"] = "oidc"
    return credentials


def _tokenize(text: str) -> Iterator[tuple[str, str]]:
    """
    Yield (kind, text); the kind is mark, word or quoted. Escapes in quotes are resolved.
    """
    position = 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            msg = "a quotation mark in it is not closed"
            raise JaasError(msg)
        kind = match.lastgroup or ""
        value = match.group(kind)
        quoted = kind in ("double", "single")
        yield ("quoted", _ESCAPE.sub(_unescape, value)) if quoted else (kind, value)
        position = match.end()


def _unescape(match: re.Match[str]) -> str:
    escaped = match.group(1)
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _LETTERS.get(escaped, escaped)


def _parse_entry(tokens: list[tuple[str, str]]) -> tuple[str, dict[str, str]]:
    if not tokens or tokens[-1] != ("mark", ";"):
        msg = 'it must end with a semicolon: Module required username="..." password="...";'
        raise JaasError(msg)
    if ("mark", ";") in tokens[:-1]:
        msg = "it names more than one login module; give one"
        raise JaasError(msg)
    head, body = tokens[:2], tokens[2:-1]
    if len(head) < 2 or head[1][1].lower() not in _FLAGS:
        msg = 'it must begin with a login module and "required"'
        raise JaasError(msg)
    return head[0][1], dict(_parse_pairs(body))


def _parse_pairs(body: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for start in range(0, len(body), 3):
        triple = body[start : start + 3]
        marks = [text if kind == "mark" else "" for kind, text in triple]
        if marks != ["", "=", ""]:
            msg = 'after the login module it must hold key="value" pairs only'
            raise JaasError(msg)
        yield triple[0][1], triple[2][1]


def _setting_names(module: str) -> Mapping[str, str]:
    names = _MODULES.get(module.rpartition(".")[2])
    if names is None:
        msg = f"its login module is not one of: {', '.join(sorted(_MODULES))}"
        raise JaasError(msg)
    return names
