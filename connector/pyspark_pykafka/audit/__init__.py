"""
Is a batch complete: the ids of the records on both sides, and the verdict.
"""
