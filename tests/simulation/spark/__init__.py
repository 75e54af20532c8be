"""
A model of Spark around the connector's readers and writers.
"""
