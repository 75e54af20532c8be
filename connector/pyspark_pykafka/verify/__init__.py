"""
`pykafka verify`: numbered records go through Kafka and Spark, and a checker compares both ends.
"""
