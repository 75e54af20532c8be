"""
Sockets, TLS, SASL and connections, and which broker gets a request.
"""
