"""
The result of a check, with advice.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """
    The status of a check. A query cannot work if a check has failed.
    """

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """
    The result of one check: ``text`` says what the check has found, ``advice`` what to do about it
    (empty if no action is needed).
    """

    check: str
    status: Status
    text: str
    advice: str = ""


def ok(check: str, text: str) -> Finding:
    """
    Return a finding that needs no action.
    """
    return Finding(check, Status.OK, text)


def warning(check: str, text: str, advice: str) -> Finding:
    """
    Return a finding on something that can become a problem.
    """
    return Finding(check, Status.WARNING, text, advice)


def failed(check: str, text: str, advice: str) -> Finding:
    """
    Return a finding on something that prevents a query from working.
    """
    return Finding(check, Status.FAILED, text, advice)


def skipped(check: str, text: str, advice: str) -> Finding:
    """
    Return a finding for a check that was not made; ``text`` is the reason.
    """
    return Finding(check, Status.SKIPPED, text, advice)
