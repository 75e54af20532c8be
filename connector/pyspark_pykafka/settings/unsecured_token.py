"""
Unsigned OAUTHBEARER tokens, which librdkafka creates by itself for tests.
"""

from __future__ import annotations

from dataclasses import dataclass

_EXTENSION = "extension_"
_LIFE_SECONDS = 3600
_NAMES = {"principal", "principalClaimName", "scope", "scopeClaimName", "lifeSeconds"}


@dataclass(frozen=True, slots=True, repr=False)
class UnsecuredToken:
    """
    The claims of an unsigned token; brokers accept it only if configured for tests.
    """

    principal: str
    principal_claim: str = "sub"
    scope: tuple[str, ...] = ()
    scope_claim: str = "scope"
    life_seconds: int = _LIFE_SECONDS
    extensions: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return "UnsecuredToken(...)"


def parse_unsecured_jwt_config(text: str) -> UnsecuredToken | None:
    """
    Return the token that ``principal=me scope=read,write`` describes.

    Returns None for any other form of the string; librdkafka then reports the error.
    """
    pairs = [pair.partition("=")[::2] for pair in text.split()]
    fields = dict(pairs)
    extensions = {name: value for name, value in pairs if name.startswith(_EXTENSION)}
    life = fields.get("lifeSeconds", str(_LIFE_SECONDS))
    unknown = fields.keys() - extensions.keys() - _NAMES
    if unknown or len(fields) < len(pairs) or not all(fields.values()) or not life.isdecimal():
        return None
    if "principal" not in fields:
        return None
    return UnsecuredToken(
        principal=fields["principal"],
        principal_claim=fields.get("principalClaimName", "sub"),
        scope=tuple(filter(None, fields.get("scope", "").split(","))),
        scope_claim=fields.get("scopeClaimName", "scope"),
        life_seconds=int(life),
        extensions=tuple((name[len(_EXTENSION) :], value) for name, value in extensions.items()),
    )
