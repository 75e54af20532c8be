"""
Metrics of streaming queries, made from Spark's progress: for Prometheus, OpenTelemetry and the log.
"""
