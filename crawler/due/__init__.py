"""The Duplicate URL Eliminator (DUE): each URL reaches the frontier once, crashes included.

Broder, Najork, Wiener (2003), section 4.1: fingerprints that missed the cache
wait in memory, their links in a log; now and then they are sorted and joined
with the sorted fingerprints on disk, and what was not there is new.

eliminator  what waits, when it is flushed, and which runs there are
links_log   the waiting links on disk
runs        sorted runs on disk: writing, joining, merging
split_runs  sorted runs in memory, 5.2 bytes a fingerprint
kernels     the inner loops
"""
