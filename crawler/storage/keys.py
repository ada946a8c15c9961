"""The keys of a process's store, the stages that own them, and how the keys move when a crawl is resharded.

A key is a prefix of two bytes (a letter and a slash), followed by a part that the owner of the prefix
defines. Keys that belong to a host begin with its bucket (two bytes, big-endian), so a range of buckets
corresponds to a range of keys.

    prefix  owner     key after the prefix         value
    u/      pages     <duplicate key>              page record: state, times, digests, validators
    c/      pages     <duplicate key><ms>          capture: segment, offset, length, kind
    g/      pages     <sha1 of the payload>        the c/ key of the first capture with these bytes
    w/      pages     <segment name>               committed length of a WARC segment
    l/      pages     <duplicate key>              tombstone of a URL whose copies were erased
    j/      pages     <segment name>\\0<offset>     length of erased bytes that must be overwritten
    D/      pages     <segment name>               length of a segment without captures, whose file must be deleted
    v/      pages     <duplicate key><ms>          capture of another process that a revisit here repeats
    t/      frontier  <host key><order>            to-do entry
    p/      frontier  <host key><order>            parked entry
    y/      frontier  <host key><48 bits of the duplicate key>   order of the URL's to-do entry
    h/      frontier  <host key>                   host record
    f/      frontier  <duplicate key>              refresh state of a page
    q/      serve     <duplicate key>              decayed count of requests to a page, and its time
    k/      serve     <duplicate key of a key file><number>      IndexNow notice that waits for its key file
    s/      frontier  <host key>                   refresh state of a site: its changes and signals
    n/      frontier  <directory key>              refresh state of a directory: its changes
    b/      frontier  <host key>                   reliability of a host's validators
    a/      frontier  <duplicate key>              decayed sums of the gain from readings of a sitemap or feed
    e/      frontier  <duplicate key>              time at which a page that was never fetched appeared
    z/      frontier  <host key><authority>        failures in a row of an authority: their number and the last outcome
    r/      robots    <authority>                  robots.txt as it was fetched
    d/      due       runs, links, flushed         list of runs, committed ends of the links log
    i/      splitter  <peer>                       number of the last durable entry of a peer
    o/      splitter  <peer>\\0<number>             entry of the outbox
    C/      consent   <bucket><digest>             consent receipt of pages, or the statements of their site
    L/      consent   <8 bytes of the site><authority>   tdmrep.json and licence documents of an authority
    R/      render    <host key><kind or digest>   renderings of a host, or of a pattern of its paths
    x/      api       <duplicate key>              page to hand to the user's code; deleted when done
    m/      (see META)                             one value per key

To add a prefix, add a line for it here. `check` then reads the values under the new prefix, and `reshard`
moves them. If the keys of a prefix do not begin with a bucket, the `reshard.py` of the owner of the prefix
decides which process gets them.
"""

from collections.abc import Mapping
from enum import Enum

import msgspec

DUE_RUNS = b"d/runs"  # the list of runs
DUE_LINKS, DUE_FLUSHED = b"d/links", b"d/flushed"  # the end of the links log, and the end of its flushed part

BUCKETS = 1 << 16


class Travel(Enum):
    """How the keys of a family get to the new processes when a crawl is resharded."""

    BUCKET = "copied with the bucket that follows the prefix"
    OWNER = "moved by the owner: the bucket is in the value or follows from the name"
    ANEW = "not copied: created again, or empty once all links are settled"


class Family(msgspec.Struct, frozen=True):
    """The keys of one prefix. If `sealed` is True, every value carries a version and a checksum (`kv.seal`)."""

    prefix: bytes
    owner: str
    travel: Travel
    sealed: bool = True


PAGE, CAPTURE, PAYLOAD, SEGMENT, ELSEWHERE = b"u/", b"c/", b"g/", b"w/", b"v/"
TODO, PARKED, HOST, REFRESH = b"t/", b"p/", b"h/", b"f/"
TOMBSTONE, ERASING, RELEASED = b"l/", b"j/", b"D/"
WAITING = b"y/"
ASKED = b"q/"
NOTICE = b"k/"
FAILING = b"z/"
RECEIPT, SITE_FILES = b"C/", b"L/"
RENDERED = b"R/"
HANDOVER = b"x/"
REFRESH_SITE, REFRESH_DIRECTORY, VALIDATORS, READINGS, BIRTHS = b"s/", b"n/", b"b/", b"a/", b"e/"
ROBOTS, DUE, INBOX, OUTBOX, META = b"r/", b"d/", b"i/", b"o/", b"m/"

FAMILIES = (
    Family(PAGE, "pages", Travel.BUCKET),
    Family(CAPTURE, "pages", Travel.BUCKET),
    Family(PAYLOAD, "pages", Travel.OWNER),
    Family(SEGMENT, "pages", Travel.OWNER),
    Family(ELSEWHERE, "pages", Travel.OWNER),
    Family(TOMBSTONE, "pages", Travel.BUCKET),
    Family(ERASING, "pages", Travel.OWNER),
    Family(RELEASED, "pages", Travel.ANEW),
    Family(TODO, "frontier", Travel.BUCKET),
    Family(PARKED, "frontier", Travel.BUCKET),
    Family(WAITING, "frontier", Travel.ANEW, sealed=False),
    Family(HOST, "frontier", Travel.BUCKET),
    Family(REFRESH, "frontier", Travel.BUCKET),
    Family(ASKED, "serve", Travel.BUCKET),
    Family(NOTICE, "serve", Travel.BUCKET),
    Family(HANDOVER, "api", Travel.BUCKET),
    Family(REFRESH_SITE, "frontier", Travel.BUCKET),
    Family(REFRESH_DIRECTORY, "frontier", Travel.BUCKET),
    Family(VALIDATORS, "frontier", Travel.BUCKET),
    Family(READINGS, "frontier", Travel.BUCKET),
    Family(BIRTHS, "frontier", Travel.BUCKET),
    Family(FAILING, "frontier", Travel.BUCKET),
    Family(RECEIPT, "consent", Travel.BUCKET),
    Family(SITE_FILES, "consent", Travel.BUCKET),
    Family(RENDERED, "render", Travel.BUCKET),
    Family(ROBOTS, "robots", Travel.OWNER),
    Family(DUE, "due", Travel.OWNER),
    Family(INBOX, "splitter", Travel.ANEW),
    Family(OUTBOX, "splitter", Travel.ANEW),
    Family(META, "", Travel.OWNER, sealed=False),
)

# The keys of `m/`, each with one value. `METAS` lists their owners.
CLEAN = b"m/clean"  # this key exists from a clean end until the next opening
RUNNING = b"m/running"  # boot id of a run of the crawl; exists from its start until its clean end
STATE = b"m/state"  # number of openings and clean ends so far
# the progress of this process and its peers at the end of the crawl, when no process had work left
ENDED = b"m/ended"
BUCKET_TABLE = b"m/buckets"  # the table with which this process was opened
PROCESS = b"m/process"  # the name of this process
SETTLED = b"m/settled"  # settings on which stored state depends
COUNTERS = b"m/counters"  # the durable counters
FRONTIER = b"m/frontier"  # last sequence number, parked URLs by rule, limits, latest unclean opening
WAITING_WHOLE = b"m/waiting"  # this key exists as long as y/ has an entry for each key of t/
REFRESH_LEVEL = b"m/refresh"  # the latest level of the refresh schedule
REFRESH_REVISIT = b"m/revisit"  # the mean time between two crawls of a page
REFRESH_TILT = b"m/tilt"  # weight of the pages of this process, relative to pages of other processes
REFRESH_HAZARD = b"m/hazard"  # correction of P[fresh]
# the numbers of found and of expected changes; from these, `Learning` corrects its probabilities of a change
REFRESH_BIAS = b"m/bias"
REFRESH_SET_BACK = b"m/setback"  # the latest run that began with a clock behind the instants of earlier runs
LIVE_BYTES = b"m/live"  # the number of bytes of captures that are kept, as counted by the latest cleaning
SCOPE_STATE = b"m/scope"  # the scope of the seeds and their redirects
EQUIVALENCES = b"m/equivalences"  # pairs of authorities that are proven to be names of one site
RUN = b"m/run"  # the current run, and the counters as they were when it began
INCARNATION = b"m/incarnation"  # number of the latest start of this process; peers refuse earlier starts
OUTBOX_STATE = b"m/outbox/"  # followed by the name of a peer: the epoch and the entry numbers of the outbox for this peer
SENT_SEEDS = b"m/seeds/"  # followed by a number of 8 bytes: fingerprints of seeds that were put into outboxes

METAS: Mapping[bytes, Family] = {
    CLEAN: Family(CLEAN, "process", Travel.ANEW, sealed=False),
    RUNNING: Family(RUNNING, "process", Travel.ANEW, sealed=False),
    STATE: Family(STATE, "process", Travel.ANEW),
    ENDED: Family(ENDED, "process", Travel.ANEW),
    BUCKET_TABLE: Family(BUCKET_TABLE, "process", Travel.ANEW, sealed=False),
    PROCESS: Family(PROCESS, "process", Travel.ANEW, sealed=False),
    SETTLED: Family(SETTLED, "process", Travel.ANEW),
    COUNTERS: Family(COUNTERS, "process", Travel.OWNER),
    FRONTIER: Family(FRONTIER, "frontier", Travel.OWNER),
    WAITING_WHOLE: Family(WAITING_WHOLE, "frontier", Travel.ANEW, sealed=False),
    REFRESH_LEVEL: Family(REFRESH_LEVEL, "frontier", Travel.OWNER),
    REFRESH_REVISIT: Family(REFRESH_REVISIT, "frontier", Travel.OWNER),
    REFRESH_TILT: Family(REFRESH_TILT, "frontier", Travel.ANEW),
    REFRESH_HAZARD: Family(REFRESH_HAZARD, "frontier", Travel.ANEW),
    REFRESH_BIAS: Family(REFRESH_BIAS, "frontier", Travel.ANEW),
    REFRESH_SET_BACK: Family(REFRESH_SET_BACK, "frontier", Travel.ANEW),
    LIVE_BYTES: Family(LIVE_BYTES, "pages", Travel.ANEW),
    SCOPE_STATE: Family(SCOPE_STATE, "urlfilter", Travel.OWNER),
    EQUIVALENCES: Family(EQUIVALENCES, "urls", Travel.OWNER),
    RUN: Family(RUN, "process", Travel.ANEW),
    INCARNATION: Family(INCARNATION, "process", Travel.ANEW),
    OUTBOX_STATE: Family(OUTBOX_STATE, "splitter", Travel.ANEW),
    SENT_SEEDS: Family(SENT_SEEDS, "process", Travel.ANEW),
}
_NAMED = (OUTBOX_STATE, SENT_SEEDS)  # the keys of `METAS` that are followed by a name or a number

# Maps the name of each counter that counts keys in the store to the prefix of these keys.
KEPT: Mapping[str, bytes] = {"stored.records": PAGE, "stored.captures": CAPTURE}

BY_BUCKET = tuple(family.prefix for family in FAMILIES if family.travel is Travel.BUCKET)
_BY_PREFIX = {family.prefix: family for family in FAMILIES}


def family(key: bytes) -> Family | None:
    """Return the family of a key; None if this version of the crawler writes no such key."""
    found = _BY_PREFIX.get(key[:2])
    if found is None or found.prefix != META:
        return found
    return METAS.get(next((prefix for prefix in _NAMED if key.startswith(prefix)), key))


def bucket(key: bytes) -> int:
    """Return the bucket of a key of a `BY_BUCKET` family."""
    return int.from_bytes(key[2:4], "big")


def bucket_range(prefix: bytes, first: int, end: int) -> tuple[bytes, bytes]:
    """Return the key range (start, stop) of a `BY_BUCKET` family with first <= bucket < end <= BUCKETS."""
    start = prefix + first.to_bytes(2, "big")
    stop = prefix + end.to_bytes(2, "big") if end < BUCKETS else prefix[:-1] + b"0"  # "0" follows "/"
    return start, stop
