# The types of the compiled decoder, which is documented in _protobuf.pyx.

from typing import Any, final

from pyspark_pykafka.formats._columns import ColumnDecoder

@final
class ProtobufDecoder(ColumnDecoder):
    def __init__(
        self,
        plan: tuple[int, str, int, int, Any],
        max_bytes: int,
        stops: bool,
        message: tuple[bool, Any],
        id_bytes: int = ...,
        ref: bytes = ...,
        /,
    ) -> None: ...
    @property
    def schemas(self) -> int: ...
    @property
    def missing_path(self) -> tuple[int, ...]: ...
    def add_schema(self, is_usable: bool) -> int: ...
    def forget_schemas(self) -> None: ...
