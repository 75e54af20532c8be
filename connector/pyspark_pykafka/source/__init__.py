"""
The source: offset limits, planning, filter push-down, micro-batches, data loss.
"""
