"""The host splitter sends links to the processes that own their hosts (`splitter/README.md`).

partition     maps each bucket to the process that owns it (a static table with an epoch and a digest)
spool         the durable queue of one peer: entries, numbers, epochs
outbox        all spools, in the phases of a commit
compaction    rewrites a long spool without repeated links
inbox         the links accepted from each peer, and which of them are durable
wire          frames and messages as pure encode and decode functions
secret        the shared secret: keys of a connection, the fingerprint seed
session       one connection as a state machine without I/O
coordination  shares of the rate, limits and the end of a crawl without a central process
peers         sockets, reconnects, TLS

The design follows Broder, Najork, Wiener 2003, section 4.1.
"""
