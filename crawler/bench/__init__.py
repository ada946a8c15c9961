"""Benchmarks that measure a part of the crawler and, in the same run, other implementations of the same task.

cache      the CLOCK cache against LRU and CLOCK caches in Python
due        the Duplicate URL Eliminator against LevelDB, SQLite, one sorted file and a Python set
splitter   the host splitter against a bare loop
units      the unit costs of this machine, for `crawler plan`

Times are CPU time unless marked as wall time. Only ratios within one run are comparable.
"""
