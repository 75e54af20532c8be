"""
Checks that no record is lost or duplicated between a query's source and its sink.
"""
