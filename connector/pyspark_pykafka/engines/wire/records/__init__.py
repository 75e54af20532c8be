"""
Record batches and Arrow columns, converted into each other by compiled code.
"""
