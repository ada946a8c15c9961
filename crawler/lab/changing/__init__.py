"""A web on loopback whose pages change, for tests and the demonstration.

web the model: change processes, sitemaps, feeds, true and false validators, the truth about copies
server  the shell: one address per host, a clock that may run fast
gain    the gain of the crawl's refresh frontier over uniform refreshing on this web, by arm
"""
