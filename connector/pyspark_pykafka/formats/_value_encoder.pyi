# The types of the compiled encoder, which is documented in _value_encoder.pyx.

from typing import final

from typing_extensions import Buffer

from pyspark_pykafka.formats.encoder_plan import CompiledPlan

class EncodingError(ValueError):
    row: int
    reason: int
    node: int
    def __init__(self, row: int, reason: int, node: int) -> None: ...

@final
class ValueEncoder:
    def __init__(
        self,
        plan: CompiledPlan,
        prefix: bytes,
        *,
        keeps_nulls: bool = ...,
        needs_finite: bool = ...,
    ) -> None: ...
    def encode(
        self,
        columns: list[tuple[int, int, int, int, bool]],
        start: int,
        end: int,
        max_bytes: int,
    ) -> tuple[int, int, Buffer, Buffer, Buffer]: ...
