"""
Reads offset ranges with retries and with checks that no record is skipped, and reads metadata,
offsets and consumer groups for the driver.
"""
