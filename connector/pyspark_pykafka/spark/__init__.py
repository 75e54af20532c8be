"""
Adapters to Spark's Python Data Source API.
"""
