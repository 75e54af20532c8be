"""
Reading one offset range: fetch requests, retries, and the checks that nothing is skipped.
"""
