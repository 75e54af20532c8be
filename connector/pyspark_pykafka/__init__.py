"""
A Kafka source and sink for Apache Spark, in Python: ``spark.read.format("pykafka")``.
"""

from pyspark_pykafka.spark.datasource import DefaultSource, register

__all__ = ["DefaultSource", "register"]

__version__ = "0.1.0"
