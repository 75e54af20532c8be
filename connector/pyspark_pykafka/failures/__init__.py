"""
When a query fails: restarts, bisection of a failing batch, dead letters.
"""
