"""
The exit codes of `pykafka`, for scripts.
"""

from __future__ import annotations

from enum import IntEnum

from pyspark_pykafka.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerUnavailableError,
    OptionsError,
    PykafkaError,
    TimeoutExceededError,
    TlsError,
    UnknownTopicError,
)


class ExitCode(IntEnum):
    """
    The exit codes of commands, as listed in docs/commands.md.
    """

    DONE = 0
    FAILED = 1
    WRONG_ARGUMENTS = 2
    NOT_FOUND = 3
    UNAVAILABLE = 4
    REFUSED = 5
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141


# Errors with these conditions are NOT_FOUND, whatever their class.
_NOT_FOUND_CONDITIONS = frozenset({"PROGRESS_NOT_FOUND", "EXACTLY_ONCE_PREFIX_NOT_FOUND"})

_CODES: tuple[tuple[type[PykafkaError], ExitCode], ...] = (
    (OptionsError, ExitCode.WRONG_ARGUMENTS),
    (UnknownTopicError, ExitCode.NOT_FOUND),
    (BrokerUnavailableError, ExitCode.UNAVAILABLE),
    (TimeoutExceededError, ExitCode.UNAVAILABLE),
    (AuthenticationError, ExitCode.REFUSED),
    (AuthorizationError, ExitCode.REFUSED),
    (TlsError, ExitCode.REFUSED),
)


def exit_code(error: Exception) -> ExitCode:
    """
    Return the exit code for an error that ended a command.
    """
    if isinstance(error, PykafkaError) and error.condition in _NOT_FOUND_CONDITIONS:
        return ExitCode.NOT_FOUND
    codes = (code for kind, code in _CODES if isinstance(error, kind))
    return next(codes, ExitCode.FAILED)
