"""
How to reach a schema registry, and where in it the schema of keys or values is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

SubjectNameStrategy = Literal["TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy"]


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """
    How to reach a schema registry: ``urls`` are tried in turn, and have no credentials in them.

    ``user_info`` is (user, password); files are PEM. ``timeout_ms`` is for all attempts together,
    ``id_bytes`` the size of the id before a key or value, 4 or 8.
    """

    urls: tuple[str, ...]
    user_info: tuple[str, str] | None = field(default=None, repr=False)
    bearer_token: str | None = field(default=None, repr=False)
    ca_location: str | None = None
    certificate_location: str | None = None
    key_location: str | None = None
    key_password: str | None = field(default=None, repr=False)
    request_timeout_ms: int = 10_000
    timeout_ms: int = 60_000
    id_bytes: int = 4


@dataclass(frozen=True, slots=True)
class SubjectOptions:
    """
    Where a column's schema is in the registry: under the subject ``name``, or under the subject
    that ``strategy`` derives from the topic and ``record_name``. Without ``version`` it is the
    latest schema.
    """

    name: str | None = None
    version: int | None = None
    strategy: SubjectNameStrategy = "TopicNameStrategy"
    record_name: str | None = None

    @property
    def names_record(self) -> bool:
        """
        Whether the subject belongs to one type of record; a topic may have several types.
        """
        return self.strategy != "TopicNameStrategy"


#: The latest version of the subject that the topic's name determines.
BY_TOPIC = SubjectOptions()
