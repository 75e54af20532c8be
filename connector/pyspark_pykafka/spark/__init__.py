"""
Adapters of Spark's Python Data Source API.
"""
