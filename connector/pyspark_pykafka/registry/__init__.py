"""
The client of a schema registry: Confluent's REST contract, which Apicurio's and others keep too.
"""
