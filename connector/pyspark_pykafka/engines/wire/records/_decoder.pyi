# The types of the compiled decoder, which is documented in _decoder.pyx.

from collections.abc import Callable, Container, Iterable
from typing import Any, final

from typing_extensions import Buffer

class MalformedBatch(ValueError):  # noqa: N818
    offset: int
    why: str
    def __init__(self, offset: int, why: str) -> None: ...

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
    def log_changed(self) -> None: ...
    def fill(self) -> bool: ...
    # None for a column that is not selected, which these types cannot express.
    def take(self) -> tuple[int, Any, Any, Any, Any, Any, Any]: ...
