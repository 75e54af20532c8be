"""
Conversion between record batches and Arrow columns by compiled code.
"""
