"""
Kafka's requests and responses, encoded and decoded by hand-written code; no I/O.
"""
