# The types of the compiled decoder, which is documented in _avro.pyx.

from typing import Any, final

from typing_extensions import Buffer

@final
class AvroDecoder:
    def __init__(
        self,
        plan: tuple[int, str, int, int, Any],
        max_bytes: int,
        stops: bool,
        writer: tuple[int, int, int, int, Any, Any],
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    def decode(
        self, validity: Buffer | None, offsets: Buffer, data: Buffer, start: int, end: int
    ) -> int: ...
    def keep(self, rows: int) -> None: ...
    def take_bad(self) -> list[tuple[int, int, int, int, int]]: ...
    def take(self) -> tuple[int, int, Any, Any, Any, Any]: ...
