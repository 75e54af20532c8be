"""
Everything that talks to brokers: two engines under one contract, and the choice between them.
"""
