"""
Decodes the keys and values of records into typed columns. Imports nothing by itself.
"""
