"""The host splitter.

The host splitter sends links whose hosts belong to another process to that process, over TCP, in durable
batches.

    accepted links --> partition --own--> CLOCK cache, DUE
                           |
                        foreign --> CLOCK cache --> outbox (o/) ==TCP==> inbox (i/) --> the owner's DUE

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

The host splitter guarantees that every link which the committer has made durable is applied by its owner
exactly once, even if one of the two processes crashes. The design follows Broder, Najork, Wiener 2003,
section 4.1. A lost disk can only cause links to be sent twice.
"""
