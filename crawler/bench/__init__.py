"""Benchmarks: our figure and its references, measured in the same run.

cache   the CLOCK cache against LRU and CLOCK caches in Python
due     the Duplicate URL Eliminator against LevelDB, SQLite, one sorted file and a Python set

Figures are CPU time unless they say wall; ratios within one run are what counts.
"""
