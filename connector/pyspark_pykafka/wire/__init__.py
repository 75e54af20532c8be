"""
The fast engine: whole record batches over sockets of our own, decoded straight into Arrow columns.

Import :mod:`pyspark_pykafka.wire.fetch` only where the compiled decoder is installed.
"""
