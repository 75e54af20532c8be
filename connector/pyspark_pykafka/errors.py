"""
The errors that users of the connector can catch.

::

    PykafkaError
    ├── OptionsError            invalid options or schema (also a ValueError)
    ├── OffsetsError            offsets that contradict each other or the topic's partitions
    ├── DataLossError           records to be read no longer exist
    ├── RecordError             a record that cannot be read or written
    ├── DeadLetterError         a bad record could not be set aside      (retriable)
    ├── ProgressError           a progress store of another query, or of another topic
    ├── ExactlyOnceError        exactly-once can no longer be guaranteed
    │   └── ConcurrentWriteError    two processes write the same batch   (retriable)
    ├── UnknownTopicError       an unknown topic or partition            (retriable)
    │   └── MissingTopicError       still missing after some seconds
    ├── AuthenticationError     credentials or mechanism rejected
    ├── AuthorizationError      operation not allowed for this user
    ├── TlsError                failed TLS handshake
    ├── TimeoutExceededError    a deadline passed                        (retriable)
    │   ├── SlowResponseError       a response took too long to arrive   (retriable)
    │   └── StalledReadError        responses without progress           (retriable)
    ├── BrokerUnavailableError  no reachable broker                      (retriable)
    └── KafkaClientError        any other error that Kafka reported

Every error keeps its data in attributes, and can be pickled without a loss. ``retriable`` means
that the same work can succeed later.

Errors that reach the driver from an executor or from the planning process are text inside Spark's
exception, in one line that begins with the condition; those raised on the driver can be caught::

    from pyspark_pykafka.errors import OptionsError

    try:
        listener = ProgressListener(options)
    except OptionsError as error:
        print(error.mistakes)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable


_MAX_TEXT_LENGTH = 4_000
_TAIL_LENGTH = 500


class PykafkaError(Exception):
    """
    The base class of every error that the connector raises on purpose.

    ``retriable``: whether the same work can succeed later without a change. ``condition`` names the
    error as Spark's conditions do. The text is shortened if it is very long; the attributes are
    complete.
    """

    retriable: bool = False
    condition: str = "PYKAFKA_ERROR"
    #: Whether the text begins with the condition, as it does in a report to Spark.
    shows_condition: bool = False
    #: The end of the text, which says what to do. An error that joins the errors of several brokers
    #: has this end only once.
    advice: str = ""

    def __str__(self) -> str:
        text = _shortened(self._text())
        return f"[{self.condition}] {text}" if self.shows_condition else text

    def without_advice(self) -> str:
        """
        Return the text without the advice at its end.
        """
        return _shortened(self._text().removesuffix(f"; {self.advice}"))

    def _text(self) -> str:
        return super().__str__()


def _shortened(text: str) -> str:
    """
    Return a message without its middle if it is very long, since the advice is at the end.
    """
    if len(text) <= _MAX_TEXT_LENGTH:
        return text
    head, tail = text[: _MAX_TEXT_LENGTH - _TAIL_LENGTH], text[-_TAIL_LENGTH:]
    return f"{head} [... {len(text) - _MAX_TEXT_LENGTH} characters left out ...] {tail}"


_E = TypeVar("_E", bound=PykafkaError)


def with_advice(kind: type[_E], reason: str, advice: str) -> _E:
    """
    Return an error whose text is a reason and what to do about it.
    """
    error = kind(f"{reason}; {advice}")
    error.advice = advice
    return error


class OptionsError(PykafkaError, ValueError):
    """
    Invalid options or an invalid schema.

    ``mistakes`` lists every mistake, one text each.
    """

    condition = "INVALID_OPTIONS"

    def __init__(self, mistakes: tuple[str, ...]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__(self.mistakes)

    def _text(self) -> str:
        if self.shows_condition and len(self.mistakes) == 1:
            return self.mistakes[0]
        lines = "\n".join(f"- {mistake}" for mistake in self.mistakes)
        return f"Spark options for 'pykafka' are wrong:\n{lines}"


def check_values(subject: object, checks: Iterable[tuple[str, bool, str]]) -> None:
    """
    Raise :class:`OptionsError` for all invalid attributes of ``subject``.

    ``checks`` holds (name of the attribute, whether it is valid, what it must be).
    """
    mistakes = tuple(
        f"{name} is {getattr(subject, name)}; it must be: {expected}"
        for name, valid, expected in checks
        if not valid
    )
    if mistakes:
        raise OptionsError(mistakes)


class _ConditionError(PykafkaError):
    """
    An error with a ``condition`` (as Spark's JVM connector names it) and an ``explanation``.
    """

    def __init__(self, condition: str, explanation: str) -> None:
        self.condition = condition
        self.explanation = explanation
        super().__init__(condition, explanation)

    def _text(self) -> str:
        return (
            self.explanation if self.shows_condition else f"[{self.condition}] {self.explanation}"
        )


class OffsetsError(_ConditionError):
    """
    Offsets that contradict each other or the topic's partitions.
    """


class DataLossError(_ConditionError):
    """
    Records to be read no longer exist, and ``failOnDataLoss`` is true.
    """


class RecordError(_ConditionError):
    """
    A record that cannot be read or written; the text gives its position.
    """


class DeadLetterError(_ConditionError):
    """
    A bad record could not be written to the dead-letter topic; its cause says why.
    """

    retriable = True


class ProgressError(_ConditionError):
    """
    A progress store that belongs to another query, or that records another topic.
    """


class ExactlyOnceError(_ConditionError):
    """
    Exactly-once can no longer be guaranteed for this write, or its transactional-id prefix belongs
    to another query.
    """


class ConcurrentWriteError(ExactlyOnceError):
    """
    Two processes write the same micro-batch; no row of this process is visible.
    """

    retriable = True


class UnknownTopicError(PykafkaError):
    """
    A topic or partition that does not exist, or that the brokers do not know yet.
    """

    condition = "UNKNOWN_TOPIC"
    retriable = True


class MissingTopicError(UnknownTopicError):
    """
    A topic or partition to write to that was still missing after some seconds.

    It is a class of its own, since an executor's error reaches the driver as text that names only
    the class. A record that names a topic which nobody creates fails each time.
    """

    retriable = False


class AuthenticationError(PykafkaError):
    """
    The broker rejects the credentials or the SASL mechanism.
    """

    condition = "AUTHENTICATION_FAILED"


class AuthorizationError(PykafkaError):
    """
    The broker does not allow this user the operation.
    """

    condition = "NOT_AUTHORIZED"


class TlsError(PykafkaError):
    """
    The TLS handshake failed: certificate, host name or protocol.
    """

    condition = "TLS_FAILED"


class TimeoutExceededError(PykafkaError):
    """
    A deadline passed before the work was done.
    """

    condition = "TIMEOUT"
    retriable = True


class SlowResponseError(TimeoutExceededError):
    """
    A response had begun to arrive, but was not complete before its timeout.
    """


class StalledReadError(TimeoutExceededError):
    """
    Brokers responded, but a read made no progress for too long; no data loss is known.
    """

    condition = "STALLED_READ"


class BrokerUnavailableError(PykafkaError):
    """
    No broker that could serve the request is reachable at the moment.
    """

    condition = "BROKER_UNAVAILABLE"
    retriable = True


class KafkaClientError(PykafkaError):
    """
    An error that Kafka reported, and that has no class of its own in this module.

    ``code`` and ``name`` are the Kafka protocol's, or librdkafka's (with negative codes).
    """

    def __init__(self, message: str, code: int, name: str, *, retriable: bool) -> None:
        self.message = message
        self.code = code
        self.name = name
        self.condition = f"KAFKA_{name.strip('_')}"
        self.retriable = retriable
        super().__init__(message, code, name)

    def __reduce__(self) -> tuple[object, ...]:
        """
        Pickle the keyword argument too, which exceptions do not keep by themselves.
        """
        arguments = (self.message, self.code, self.name, self.retriable)
        return (_restored, arguments, self.__dict__)

    def _text(self) -> str:
        return self.message


def _restored(message: str, code: int, name: str, retriable: bool) -> KafkaClientError:
    return KafkaClientError(message, code, name, retriable=retriable)


def error_text(error: BaseException) -> str:
    """
    Return the text of an error of any class, even of one whose ``__str__`` raises an error.

    An error of py4j requests its text from Spark's Java process. Once that process has ended, only
    py4j's own line is left.
    """
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 (whatever it is, the error itself matters more)
        first = error.args[0] if error.args else None
        return first if isinstance(first, str) else f"no text ({type(failure).__name__})"
