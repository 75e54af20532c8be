# The types of the compiled decoder, which is documented in _protobuf.pyx.

from typing import Any, final

from typing_extensions import Buffer

@final
class ProtobufDecoder:
    def __init__(
        self,
        plan: tuple[int, str, int, int, Any],
        max_bytes: int,
        stops: bool,
        message: tuple[bool, Any],
        id_bytes: int = ...,
        /,
    ) -> None: ...
    @property
    def schemas(self) -> int: ...
    @property
    def missing_path(self) -> tuple[int, ...]: ...
    def add_schema(self, is_usable: bool) -> int: ...
    def forget_schemas(self) -> None: ...
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
