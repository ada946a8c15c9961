"""A web on loopback whose pages change, for tests and the demonstration.

web     the model: change processes, sitemaps, feeds, validators right and lying, the judgement
server  the shell: one address a host, a clock that may run fast
gain    what the crawl's refresh frontier gains there over uniform, by arms
"""
