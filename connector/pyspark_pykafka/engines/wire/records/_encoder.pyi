# The types of the compiled encoder, which is documented in _encoder.pyx.

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias, final

from typing_extensions import Buffer

# Addresses of validity, offsets and data; index of the first element; whether offsets have 64 bits.
Column: TypeAlias = tuple[int, int, int, int, bool]

class RowError(ValueError):
    TOO_LARGE: Final[int]
    NO_PARTITION: Final[int]
    TOO_EARLY: Final[int]
    NO_HEADER_KEY: Final[int]
    row: int
    reason: int
    detail: int
    def __init__(self, row: int, reason: int, detail: int) -> None: ...

@final
class Payload:
    @property
    def count(self) -> int: ...
    @property
    def base_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class RecordEncoder:
    def __init__(
        self, batch_bytes: int, record_bytes: int, seed: int, *, hashes: bool = False
    ) -> None: ...
    @property
    def open_bytes(self) -> int: ...
    @property
    def content(self) -> int: ...
    def add_topic(
        self, partitions: int, available: Iterable[int], name: Buffer = b""
    ) -> tuple[int, int]: ...
    def feed(
        self,
        owner: object,
        rows: int,
        columns: Mapping[str, Column],
        numbers: Buffer,
        now_ms: int,
    ) -> None: ...
    def fill(self) -> int: ...
    def take(self, slot: int) -> Payload | None: ...
    def filled(self) -> list[int]: ...

def partition_for(key: Buffer, partitions: int) -> int: ...
