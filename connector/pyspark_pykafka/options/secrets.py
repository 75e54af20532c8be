"""
The options whose values are secret: they must not be stored or printed in plain text.
"""

from __future__ import annotations

import re

from pyspark_pykafka.options.table import BY_KEY
from pyspark_pykafka.settings import PRINTABLE

_PREFIX = "kafka."
_SECURITY = re.compile(r"kafka\.(sasl|ssl)\.")


def is_secret(name: str) -> bool:
    """
    Return whether the value of an option is secret; names are not case-sensitive.
    """
    key = name.lower()
    if _SECURITY.match(key):
        return key.removeprefix(_PREFIX) not in PRINTABLE
    option = BY_KEY.get(key)
    return option is not None and option.secret
