"""
The Arrow types of Avro's logical time types, and their conversions in the compiled decoder.
"""

from __future__ import annotations

import pyarrow as pa

#: The compiled decoder's numbers for its conversions.
AS_IT_IS, FROM_MILLIS, FROM_NANOS, TO_MEMBERS = range(4)

TIMESTAMP = pa.timestamp("us", tz="UTC")
_LOCAL = pa.timestamp("us")
#: For each logical type: its Arrow type, and the conversion to it.
TIMES = {
    "timestamp-millis": (TIMESTAMP, FROM_MILLIS),
    "timestamp-micros": (TIMESTAMP, AS_IT_IS),
    "timestamp-nanos": (TIMESTAMP, FROM_NANOS),
    "local-timestamp-millis": (_LOCAL, FROM_MILLIS),
    "local-timestamp-micros": (_LOCAL, AS_IT_IS),
    "local-timestamp-nanos": (_LOCAL, FROM_NANOS),
}
