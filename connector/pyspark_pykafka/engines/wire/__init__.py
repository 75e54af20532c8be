"""
The fast engine: its own Kafka client, with compiled conversion of record batches to and from Arrow.

Import :mod:`pyspark_pykafka.engines.wire.consumer.range_reader` only where the compiled decoder is
installed.
"""
