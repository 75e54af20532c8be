# The types of the compiled decoder, which is documented in _json.pyx.

from typing import Any, final

from pyspark_pykafka.formats._columns import ColumnDecoder

@final
class JsonDecoder(ColumnDecoder):
    def __init__(
        self,
        plan: tuple[int, str, int, int, Any],
        max_bytes: int,
        stops: bool,
        id_bytes: int = ...,
        rescues: bool = ...,
    ) -> None: ...
