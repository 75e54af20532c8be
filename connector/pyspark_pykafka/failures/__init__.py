"""
When a query fails: restarts, the record that is to blame, dead letters.
"""
