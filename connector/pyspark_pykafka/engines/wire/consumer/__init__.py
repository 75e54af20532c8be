"""
Reads one offset range: fetch requests, retries, and checks that no record is skipped.
"""
