"""
Decodes and encodes the typed keys and values of records. This module itself imports nothing.
"""
