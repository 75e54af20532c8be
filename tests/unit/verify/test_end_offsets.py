"""
End offsets that brokers do not return.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.verify import topics

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest


class SilentAdmin:
    """
    An admin client whose requests are never answered.
    """

    def __init__(self, _: object) -> None: ...

    def list_offsets(self, specs: Iterable[Any], **_: object) -> dict[Any, Future[Any]]:
        return {tp: Future() for tp in specs}


def test_brokers_that_do_not_respond(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    If a response is missing or is an error, the end offsets are unknown for now.
    """
    monkeypatch.setattr(topics, "AdminClient", SilentAdmin)
    monkeypatch.setattr(topics, "_REQUEST_SECONDS", 0.01)

    assert topics.EndOffsets({}, 2).of("t") == {}
