"""
`pykafka verify`: sends numbered records through Kafka and Spark, and compares input and output.
"""
