"""
A deterministic simulation: whole runs of the connector without threads, sockets or real time.
"""
