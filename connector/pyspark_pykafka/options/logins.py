"""
The options of a login, whose values must not be stored or printed in plain text.
"""

from __future__ import annotations

import re

from pyspark_pykafka.options.table import BY_KEY
from pyspark_pykafka.settings import PRINTABLE

_PREFIX = "kafka."
_LOGIN = re.compile(r"kafka\.(sasl|ssl)\.")


def is_login(name: str) -> bool:
    """
    Return whether an option belongs to a login; names are not case-sensitive.
    """
    key = name.lower()
    if _LOGIN.match(key):
        return key.removeprefix(_PREFIX) not in PRINTABLE
    option = BY_KEY.get(key)
    return option is not None and option.secret
