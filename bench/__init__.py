"""
Measures pykafka against Spark's JVM connector, side by side on one broker and one Spark session.

Run it from the root of the repository: ``python -m bench``, or ``make bench``.
"""
