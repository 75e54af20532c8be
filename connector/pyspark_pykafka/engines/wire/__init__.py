"""
The fast engine: whole record batches over sockets of its own, decoded straight into Arrow columns.

Import :mod:`pyspark_pykafka.engines.wire.consumer.range_reader` only where the compiled decoder is
installed.
"""
