# The types of the compiled decoder, which is documented in _avro.pyx.

from typing import Any, final

from pyspark_pykafka.formats._columns import ColumnDecoder

@final
class AvroDecoder(ColumnDecoder):
    def __init__(
        self,
        plan: tuple[int, str, int, int, Any],
        max_bytes: int,
        stops: bool,
        writer: tuple[int, int, int, int, Any, Any] | None,
        id_bytes: int = ...,
    ) -> None: ...
    @property
    def schemas(self) -> int: ...
    def add_schema(self, key: int, writer: tuple[int, int, int, int, Any, Any] | None) -> None: ...
    def forget_schemas(self) -> None: ...
