"""A web on loopback whose pages change, for tests and the demonstration."""
