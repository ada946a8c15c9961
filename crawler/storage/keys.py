"""The keys of a process's store, the stages that own them, and how the keys move when a crawl is resharded.

A key is a prefix of two bytes (a letter and a slash), followed by a part that the owner of the prefix
defines. Keys that belong to a host begin with its bucket (two bytes, big-endian), so a range of buckets
corresponds to a range of keys. Below, the comment of each prefix says what follows it, and what the value is.

To add a prefix, add a line for it here. `check` then reads the values under the new prefix, and `reshard`
moves them. If the keys of a prefix do not begin with a bucket, the `reshard.py` of the owner of the prefix
decides which process gets them.
"""

from collections.abc import Mapping
from enum import Enum

import msgspec

BUCKETS = 1 << 16


class Travel(Enum):
    """How the keys of a family get to the new processes when a crawl is resharded."""

    BUCKET = "copied with the bucket that follows the prefix"
    OWNER = "moved by the owner: the bucket is in the value or follows from the name"
    ANEW = "not copied: created again, or empty once all links are settled"


class Family(msgspec.Struct, frozen=True):
    """The keys of one prefix.

    If `sealed` is True, every value carries a version and a checksum (`kv.seal`). If `of_files` is True, a process
    also has keys for hosts of other processes: for files that its pages need, which it stores with its pages.
    """

    prefix: bytes
    owner: str
    travel: Travel
    sealed: bool = True
    of_files: bool = False


FAMILIES: dict[bytes, Family] = {}  # by prefix; each key of `m/` is a family of its own


def _family(
    prefix: bytes, owner: str, travel: Travel = Travel.BUCKET, *, sealed: bool = True, of_files: bool = False
) -> bytes:
    """Define a family, and return its prefix."""
    assert prefix not in FAMILIES, prefix
    FAMILIES[prefix] = Family(prefix, owner, travel, sealed, of_files)
    return prefix


PAGE = _family(b"u/", "pages")  # <duplicate key>: page record: state, times, digests, validators
# <duplicate key><ms>: capture: segment, offset, length, kind
CAPTURE = _family(b"c/", "pages", of_files=True)
# <sha1 of the payload>: the c/ key of the first capture with these bytes
PAYLOAD = _family(b"g/", "pages", Travel.OWNER)
SEGMENT = _family(b"w/", "pages", Travel.OWNER)  # <segment name>: committed length of a WARC segment
# <duplicate key>: tombstone of a URL whose copies were erased
TOMBSTONE = _family(b"l/", "pages", of_files=True)
# <segment name>\0<offset>: length of erased bytes that must be overwritten
ERASING = _family(b"j/", "pages", Travel.OWNER)
# <segment name>: length of a segment without captures, whose file must be deleted
RELEASED = _family(b"D/", "pages", Travel.ANEW)
# <duplicate key><ms>: capture of another process that a revisit here repeats
ELSEWHERE = _family(b"v/", "pages", Travel.OWNER)
TODO = _family(b"t/", "frontier")  # <host key><order>: to-do entry
PARKED = _family(b"p/", "frontier")  # <host key><order>: parked entry
# <host key><48 bits of the duplicate key>: order of the URL's to-do entry
WAITING = _family(b"y/", "frontier", Travel.ANEW, sealed=False)
HOST = _family(b"h/", "frontier")  # <host key>: host record
REFRESH = _family(b"f/", "frontier")  # <duplicate key>: refresh state of a page
ASKED = _family(b"q/", "serve")  # <duplicate key>: decayed count of requests to a page, and its time
# <duplicate key of a key file><number>: IndexNow notice that waits for its key file
NOTICE = _family(b"k/", "serve")
REFRESH_SITE = _family(b"s/", "frontier")  # <host key>: refresh state of a site: its changes and signals
REFRESH_DIRECTORY = _family(b"n/", "frontier")  # <directory key>: refresh state of a directory: its changes
VALIDATORS = _family(b"b/", "frontier")  # <host key>: reliability of a host's validators
# <duplicate key>: decayed sums of the gain from readings of a sitemap or feed
READINGS = _family(b"a/", "frontier")
# <duplicate key>: change signals of a page that wait for a run that refreshes pages
SIGNALS = _family(b"S/", "frontier")
BIRTHS = _family(b"e/", "frontier")  # <duplicate key>: time at which a page that was never fetched appeared
# <host key><authority>: failures in a row of an authority: their number and the last outcome
FAILING = _family(b"z/", "frontier")
ROBOTS = _family(b"r/", "robots", Travel.OWNER)  # <authority>: robots.txt as it was fetched
DUE = _family(b"d/", "due", Travel.OWNER)  # the three keys below
DUE_RUNS = b"d/runs"  # the list of runs
DUE_LINKS, DUE_FLUSHED = b"d/links", b"d/flushed"  # the end of the links log, and the end of its flushed part
INBOX = _family(b"i/", "splitter", Travel.ANEW)  # <peer>: number of the last durable entry of a peer
OUTBOX = _family(b"o/", "splitter", Travel.ANEW)  # <peer>\0<number>: entry of the outbox
# <bucket><digest>: consent receipt of pages, or the statements of their site
RECEIPT = _family(b"C/", "consent", of_files=True)
# <8 bytes of the site><authority>: tdmrep.json and licence documents of an authority
SITE_FILES = _family(b"L/", "consent")
# <host key><kind or digest>: renderings of a host, or of a pattern of its paths
RENDERED = _family(b"R/", "render")
HANDOVER = _family(b"x/", "api")  # <duplicate key>: page to hand to the user's code; deleted when done

# Each of these keys has one value.
META = b"m/"
# this key exists from a clean end until the next opening
CLEAN = _family(b"m/clean", "process", Travel.ANEW, sealed=False)
# boot id of a run of the crawl; exists from its start until its clean end
RUNNING = _family(b"m/running", "process", Travel.ANEW, sealed=False)
STATE = _family(b"m/state", "process", Travel.ANEW)  # number of openings and clean ends so far
# the progress of this process and its peers at the end of the crawl, when no process had work left
ENDED = _family(b"m/ended", "process", Travel.ANEW)
# the table with which this process was opened
BUCKET_TABLE = _family(b"m/buckets", "process", Travel.ANEW, sealed=False)
PROCESS = _family(b"m/process", "process", Travel.ANEW, sealed=False)  # the name of this process
SETTLED = _family(b"m/settled", "process", Travel.ANEW)  # settings on which stored state depends
COUNTERS = _family(b"m/counters", "process", Travel.OWNER)  # the durable counters
# last sequence number, parked URLs by rule, limits, latest unclean opening
FRONTIER = _family(b"m/frontier", "frontier", Travel.OWNER)
# this key exists as long as y/ has an entry for each key of t/
WAITING_WHOLE = _family(b"m/waiting", "frontier", Travel.ANEW, sealed=False)
REFRESH_LEVEL = _family(b"m/refresh", "frontier", Travel.OWNER)  # the latest level of the refresh schedule
# the mean time between two crawls of a page
REFRESH_REVISIT = _family(b"m/revisit", "frontier", Travel.OWNER)
# weight of the pages of this process, relative to pages of other processes
REFRESH_TILT = _family(b"m/tilt", "frontier", Travel.ANEW)
REFRESH_HAZARD = _family(b"m/hazard", "frontier", Travel.ANEW)  # correction of P[fresh]
# the numbers of found and of expected changes, from which `Learning` corrects its probabilities of a change, and
# the factor of the variation of rates
REFRESH_BIAS = _family(b"m/bias", "frontier", Travel.OWNER)
# the new pages that refetches found, by kind of hub, and the delays from their publication to their copies
NEWS = _family(b"m/news", "frontier", Travel.OWNER)
# the latest run that began with a clock behind the instants of earlier runs
REFRESH_SET_BACK = _family(b"m/setback", "frontier", Travel.ANEW)
# verdicts of the user's URL filter on links of pages that the latest run did not finish
VERDICTS = _family(b"m/verdicts", "urlfilter", Travel.ANEW)
# the number of bytes of captures that are kept, as counted by the latest cleaning
LIVE_BYTES = _family(b"m/live", "pages", Travel.ANEW)
SCOPE_STATE = _family(b"m/scope", "urlfilter", Travel.OWNER)  # the scope of the seeds and their redirects
# pairs of authorities that are proven to be names of one site
EQUIVALENCES = _family(b"m/equivalences", "urls", Travel.OWNER)
# the current run, and the counters as they were when it began
RUN = _family(b"m/run", "process", Travel.ANEW)
# number of the latest start of this process; peers refuse earlier starts
INCARNATION = _family(b"m/incarnation", "process", Travel.ANEW)
# followed by the name of a peer: the epoch and the entry numbers of the outbox for this peer
OUTBOX_STATE = _family(b"m/outbox/", "splitter", Travel.ANEW)
# places of sites that may be endless (`process/results/trap_watch.py`)
TRAPS = _family(b"m/traps", "process", Travel.ANEW)
# followed by a number of 8 bytes: fingerprints of seeds that were put into outboxes
SENT_SEEDS = _family(b"m/seeds/", "process", Travel.OWNER)
# followed by the same number: the URLs of these seeds
SENT_SEED_URLS = _family(b"m/seed-urls/", "process", Travel.OWNER)
_NAMED = (
    OUTBOX_STATE,
    SENT_SEEDS,
    SENT_SEED_URLS,
)  # the keys of `m/` that are followed by a name or a number

# Maps the name of each counter that counts keys in the store to the prefix of these keys.
KEPT: Mapping[str, bytes] = {"stored.records": PAGE, "stored.captures": CAPTURE}

BY_BUCKET = tuple(prefix for prefix, family in FAMILIES.items() if family.travel is Travel.BUCKET)


def family(key: bytes) -> Family | None:
    """Return the family of a key; None if this version of the crawler writes no such key."""
    prefix = key[:2]
    if prefix == META:
        prefix = next((each for each in _NAMED if key.startswith(each)), key)
    return FAMILIES.get(prefix)


def bucket(key: bytes) -> int:
    """Return the bucket of a key of a `BY_BUCKET` family."""
    return int.from_bytes(key[2:4], "big")


def bucket_range(prefix: bytes, first: int, end: int) -> tuple[bytes, bytes]:
    """Return the key range (start, stop) of a `BY_BUCKET` family with first <= bucket < end <= BUCKETS."""
    start = prefix + first.to_bytes(2, "big")
    stop = prefix + end.to_bytes(2, "big") if end < BUCKETS else prefix[:-1] + b"0"  # "0" follows "/"
    return start, stop
