"""Simulations of URL caches on traces of links."""
