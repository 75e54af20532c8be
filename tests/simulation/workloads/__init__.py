"""
What the histories do, and what must hold at their end.
"""
