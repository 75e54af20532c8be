"""
What a read does: offset limits, planning, filters, micro-batches, data loss.
"""
