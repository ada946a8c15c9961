"""The Duplicate URL Eliminator (DUE): each URL reaches the frontier once, crashes included.

Broder, Najork, Wiener (2003), section 4.1: fingerprints that missed the cache
wait in memory, their links in a log; now and then they are sorted and joined
with the sorted fingerprints on disk, and what was not there is new.

eliminator   what the process sees: links in, new links out, in the steps of its commits
waiting      links on their way to the next flush
links_log    the links themselves, on disk
plans        a flush, a compaction
known_set    the runs that hold the known fingerprints, merged in powers of two
runs         a run on disk, 5 bytes a fingerprint
memory_runs  runs in memory
merging      several runs as one stream

The inner loops, compiled where that can be: sorting, plain_join, elias_fano (runs in
code, and the join with them), pending_set; inline.pxd is what they share.
"""
