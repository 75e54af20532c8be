"""
The workloads of the histories, and the checks at their end.
"""
