"""
A page in the browser: queries, their partitions and lag over time, replays, dead letters, errors.

It changes nothing, and fetches nothing from elsewhere.
"""
