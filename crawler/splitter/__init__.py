"""The host splitter: links of other processes' hosts leave in durable batches over TCP.

    accepted links --> partition --own--> CLOCK cache, DUE
                           |
                        foreign --> CLOCK cache --> outbox (o/) ==TCP==> inbox (i/) --> the owner's DUE

partition   which process owns a bucket (a static table with an epoch and a digest)
spool       the durable queue of one peer: entries, numbers, epochs
outbox      all spools, in the phases of a commit
compaction  a long spool without repeated links
inbox       what was accepted from a peer, what of it is durable
wire        frames and messages as pure encode and decode
secret      the shared secret: keys of a connection, the fingerprint seed
session     one connection as a state machine without input or output
crawlwide   shares of the rate, limits and the end of a crawl without a centre
peers    S  sockets, reconnects, TLS

The promise (`Broder, Najork, Wiener 2003`, section 4.1, for the shape): a link
that the committer has made durable is applied by its owner exactly once, after
any crash of either end; a lost disk can only make links be sent twice.
"""
