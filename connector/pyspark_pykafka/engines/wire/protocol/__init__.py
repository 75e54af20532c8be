"""
Kafka's requests and responses, laid out by hand; no I/O.
"""
