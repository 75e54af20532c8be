"""
The portable engine: everything through librdkafka, a Python object per record, works everywhere.
"""

from pyspark_pykafka.rdkafka.fetch import fetch
from pyspark_pykafka.rdkafka.produce import produce

__all__ = ["fetch", "produce"]
