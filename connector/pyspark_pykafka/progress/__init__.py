"""
Where a query's progress is recorded besides Spark's checkpoint: a consumer group or ZooKeeper.

The checkpoint remains authoritative. A store serves readers outside the query: lag tools, people,
and a new query that continues from another query's offsets.
"""
