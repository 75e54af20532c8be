"""
The soak test: all workloads at once on real brokers and Spark executors, while nemeses strike.
"""
