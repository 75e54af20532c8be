"""
The sink: writes at least once, or exactly once with transactions and a ledger.
"""
