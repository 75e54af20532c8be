"""
The checks of `pykafka doctor`: this machine, the brokers, and the permissions that a query needs.
"""
