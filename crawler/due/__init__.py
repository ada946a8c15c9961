"""The Duplicate URL Eliminator (DUE), which passes each URL to the frontier exactly once (`due/README.md`).

eliminator      the interface: takes links and returns those of new URLs, in steps that fit the commits
pending_links   links that wait for the next flush
links_log       those links on disk
plans           a flush and a compaction, as plans that any thread can run
known_set       the sorted runs that hold the known fingerprints, merged in powers of two
runs            one run on disk, about 5 bytes per fingerprint
run_list        the list of valid runs in the store
compactor       merges runs, one merge at a time
merging         merge several runs into one stream
run_layout      the layout of the blocks of a run

The modules with the inner loops are compiled where a compiler is available: `sorting`, `pending_set` and
`elias_fano` (the coding of runs and look-ups in coded runs). They share inline.pxd.
"""
