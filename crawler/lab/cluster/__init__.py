"""Simulates many processes of a crawl in a virtual world; see `README.md`."""
