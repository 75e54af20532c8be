"""
The errors that users of the connector can catch.

::

    PykafkaError
    ├── OptionsError            options or a schema that cannot be used (also a ValueError)
    ├── OffsetsError            offsets that contradict each other or the topic's partitions
    ├── DataLossError           records that were to be read are gone
    ├── RecordError             one record that cannot be read or written as asked
    ├── ProgressError           a progress store that is another query's, or about another topic
    ├── ExactlyOnceError        a write that cannot be made exactly-once any more
    │   └── ConcurrentWriteError    the same batch, written by two at once   (retriable)
    ├── UnknownTopicError       a topic or partition that does not exist  (retriable)
    ├── AuthenticationError     the broker does not accept who we are
    ├── AuthorizationError      the broker knows us and refuses the operation
    ├── TlsError                no trusted connection could be made
    ├── TimeoutExceededError    a deadline passed                        (retriable)
    │   └── StalledReadError        answers came, but no records             (retriable)
    ├── BrokerUnavailableError  no broker can answer at the moment       (retriable)
    └── KafkaClientError        any other error that Kafka reported

Each error carries its data as attributes and survives pickling whole: Spark moves errors from
executors to the driver. ``retriable`` tells a supervisor whether the same work can succeed later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class PykafkaError(Exception):
    """
    The root of every error that the connector raises on purpose.
    """

    retriable: bool = False


class OptionsError(PykafkaError, ValueError):
    """
    Options or a schema that cannot be used; lists every mistake at once.
    """

    def __init__(self, mistakes: tuple[str, ...]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__(self.mistakes)

    def __str__(self) -> str:
        lines = "\n".join(f"- {mistake}" for mistake in self.mistakes)
        return f"Spark options for 'pykafka' are wrong:\n{lines}"


def check_values(subject: object, checks: Iterable[tuple[str, bool, str]]) -> None:
    """
    Raise :class:`OptionsError` for all attributes that are not good: (name, good, what it must be).
    """
    mistakes = tuple(
        f"{name} is {getattr(subject, name)}; it must be: {expected}"
        for name, good, expected in checks
        if not good
    )
    if mistakes:
        raise OptionsError(mistakes)


class _ConditionError(PykafkaError):
    """
    An error that carries the condition name which Spark's JVM connector uses for the same case.
    """

    def __init__(self, condition: str, explanation: str) -> None:
        self.condition = condition
        self.explanation = explanation
        super().__init__(condition, explanation)

    def __str__(self) -> str:
        return f"[{self.condition}] {self.explanation}"


class OffsetsError(_ConditionError):
    """
    Offsets that contradict each other or the partitions that the topic has.
    """


class DataLossError(_ConditionError):
    """
    Records that were to be read are gone, and ``failOnDataLoss`` is true.
    """


class RecordError(_ConditionError):
    """
    One record that cannot be read or written as asked; the text names where it is.
    """


class ProgressError(_ConditionError):
    """
    A progress store that belongs to another query, or whose records are about another topic.
    """


class ExactlyOnceError(_ConditionError):
    """
    A write of which nobody could say that each row is there once, or whose prefix is another's.
    """


class ConcurrentWriteError(ExactlyOnceError):
    """
    Two processes write the same micro-batch; nothing of this one is visible.
    """

    retriable = True


class UnknownTopicError(PykafkaError):
    """
    A topic or partition that the brokers do not have, or do not know of yet.
    """

    retriable = True


class AuthenticationError(PykafkaError):
    """
    The broker does not accept the credentials, or the mechanism.
    """


class AuthorizationError(PykafkaError):
    """
    The broker knows the user and refuses the operation.
    """


class TlsError(PykafkaError):
    """
    The TLS handshake failed: certificate, host name or protocol.
    """


class TimeoutExceededError(PykafkaError):
    """
    A deadline passed before the work was done.
    """

    retriable = True


class StalledReadError(TimeoutExceededError):
    """
    Brokers answered, and for so long brought a read no further; nothing says that records are gone.
    """


class BrokerUnavailableError(PykafkaError):
    """
    No broker that could answer is reachable at the moment.
    """

    retriable = True


class KafkaClientError(PykafkaError):
    """
    An error of Kafka's own that has no class of its own here.

    ``code`` and ``name`` are those of the Kafka protocol, or librdkafka's negative local ones.
    """

    def __init__(self, message: str, code: int, name: str, *, retriable: bool) -> None:
        self.message = message
        self.code = code
        self.name = name
        self.retriable = retriable
        super().__init__(message, code, name)

    def __reduce__(self) -> tuple[object, ...]:
        """
        Pickle with the keyword argument that exceptions cannot keep by themselves.
        """
        return (_restored, (self.message, self.code, self.name, self.retriable))

    def __str__(self) -> str:
        return self.message


def _restored(message: str, code: int, name: str, retriable: bool) -> KafkaClientError:
    return KafkaClientError(message, code, name, retriable=retriable)
