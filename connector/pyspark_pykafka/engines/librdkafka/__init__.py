"""
The portable engine: librdkafka, with a Python object per record; works everywhere.
"""
