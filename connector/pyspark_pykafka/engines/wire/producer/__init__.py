"""
The producer: per-partition ordering, in-flight requests, retries.
"""
