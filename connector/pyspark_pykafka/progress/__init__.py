"""
Where a query's progress is kept besides Spark's checkpoint: a consumer group, ZooKeeper, nowhere.

The checkpoint stays the truth. A store is for those outside the query: lag tools, a new query that
goes on where another left, and people.
"""
