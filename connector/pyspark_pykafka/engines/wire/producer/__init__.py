"""
Writing: batches in the order of each partition, in-flight requests, retries.
"""
