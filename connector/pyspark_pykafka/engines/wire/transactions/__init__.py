"""
Transactions: begun, described and ended at their coordinators.
"""
