"""
The client of a schema registry with Confluent's REST API, which Apicurio and others implement too.
"""
