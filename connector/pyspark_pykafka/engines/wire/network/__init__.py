"""
Sockets, TLS, SASL and connections, and the choice of a broker for each request.
"""
