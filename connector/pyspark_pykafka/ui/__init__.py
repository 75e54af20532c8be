"""
A web page that shows queries, their partitions and lag over time, replays, dead letters and errors.

The page is read-only and loads nothing from other servers.
"""
