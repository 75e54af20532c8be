"""
Tests of users whose broker cannot be started: they are skipped, or they fail.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pyspark_pykafka.testing import FetchError
from pyspark_pykafka.testing.plugin import _skip_or_fail

ERROR = FetchError("the jars could not be downloaded")


def config(*, requires_broker: bool) -> pytest.Config:
    options: dict[str, Any] = {"--require-broker": requires_broker}
    return cast("pytest.Config", SimpleNamespace(getoption=options.__getitem__))


@pytest.mark.parametrize(("requires_broker", "ci"), [(True, ""), (False, "true"), (True, "true")])
def test_a_missing_broker_is_an_error(
    monkeypatch: pytest.MonkeyPatch, ci: str, *, requires_broker: bool
) -> None:
    """
    With --require-broker, or if CI is set, the test fails with the reason.
    """
    monkeypatch.setenv("CI", ci)

    with pytest.raises(FetchError, match="could not be downloaded"):
        _skip_or_fail(config(requires_broker=requires_broker), ERROR)


@pytest.mark.parametrize("ci", ["", None])
def test_a_missing_broker_skips_the_test(monkeypatch: pytest.MonkeyPatch, ci: str | None) -> None:
    """
    Otherwise the test is skipped, with the reason and the option that makes it fail.
    """
    monkeypatch.delenv("CI", raising=False)
    if ci is not None:
        monkeypatch.setenv("CI", ci)

    with pytest.raises(pytest.skip.Exception, match="--require-broker.*could not be downloaded"):
        _skip_or_fail(config(requires_broker=False), ERROR)
