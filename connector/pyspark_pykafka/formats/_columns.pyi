# The types that the compiled decoders share, which are documented in _columns.pxi.

from typing import Any

from typing_extensions import Buffer

class ColumnDecoder:
    @property
    def rows(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def missing(self) -> int | None: ...
    def decode(
        self,
        validity: Buffer | None,
        offsets: Buffer,
        data: Buffer,
        start: int,
        end: int,
        *,
        keys: tuple[Buffer, Buffer] | None = ...,
        first_row: int = ...,
    ) -> int: ...
    def keep(self, rows: int) -> None: ...
    def take_bad(self) -> list[tuple[int, int, int, int, int]]: ...
    def take(self) -> tuple[int, int, Any, Any, Any, Any]: ...
