"""
The portable engine: librdkafka, one Python object per record, on every platform.
"""
