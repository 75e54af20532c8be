"""
Begins, describes and ends transactions at their coordinators.
"""
