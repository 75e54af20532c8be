"""
What a write does: at least once, or exactly once with a ledger.
"""
