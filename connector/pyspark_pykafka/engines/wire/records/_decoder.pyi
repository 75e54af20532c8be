# The types of the compiled decoder, which is documented in _decoder.pyx.

from collections.abc import Callable, Container, Iterable
from typing import TypeAlias, final

from typing_extensions import Buffer

# Row count, null count, validity bitmap, end offsets, and the bytes of all values.
BytesColumn: TypeAlias = tuple[int, int, Buffer | None, Buffer, Buffer]
# Row count, null count, validity bitmap, end offsets, and the keys and values of all headers.
HeadersColumn: TypeAlias = tuple[int, int, Buffer | None, Buffer, BytesColumn, BytesColumn]

class MalformedBatch(ValueError):  # noqa: N818
    offset: int
    reason: str
    def __init__(self, offset: int, reason: str) -> None: ...

class TimestampTooLarge(ValueError):  # noqa: N818
    offset: int
    millis: int
    def __init__(self, offset: int, millis: int) -> None: ...

class OldFormat(ValueError):  # noqa: N818
    offset: int
    magic: int
    def __init__(self, offset: int, magic: int) -> None: ...

def next_offset(records: Buffer, position: int) -> int: ...

@final
class RecordDecoder:
    def __init__(
        self,
        columns: Container[str],
        start: int,
        end: int,
        crc32c: Callable[[memoryview], int] | None,
        decompress: Callable[[int, memoryview], Buffer],
        max_rows: int,
        max_bytes: int,
    ) -> None: ...
    @property
    def position(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def done(self) -> bool: ...
    def feed(self, records: Buffer, aborted: Iterable[tuple[int, int]] = ...) -> None: ...
    def skip_to(self, position: int) -> None: ...
    def allow_log_change(self) -> None: ...
    def fill(self) -> bool: ...
    # None for a column that is not selected, and for headers if no record has any.
    def take(
        self,
    ) -> tuple[
        int,
        BytesColumn | None,
        BytesColumn | None,
        Buffer | None,
        Buffer | None,
        Buffer | None,
        HeadersColumn | None,
    ]: ...
