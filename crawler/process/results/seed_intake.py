"""Queues the seeds. The caller gives the seeds as a series of lists. Each list becomes one change of the store.

command line, file, configuration --> crawl/seeds.py: canonical, in pieces
    one process, or a node         Seeds                     every seed is treated like any link
    several under a supervisor     SeedFile, read by all     each takes its own; first the scope takes all

With `crawl.timestamping`, known pages are first put back into the queues of their hosts. Each page is queued
once, unless it is queued already.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import compress, islice

import numpy as np
from numpy.typing import NDArray

from crawler.process.results.admission import Admission
from crawler.process.results.site_knowledge import SiteKnowledge
from crawler.records import Link, LinkFlag, PageRecord, PageState
from crawler.splitter.partition import Partition
from crawler.storage.commit import Change, Maker
from crawler.urls.fingerprint import Fingerprinter

Pieces = Iterable[Sequence[str]]
Own = Callable[[Sequence[str]], Sequence[str]]
KNOWN_AT_ONCE = 1000  # number of known pages queued per commit
_AGAIN, _OWN_REQUEST = LinkFlag.AGAIN, LinkFlag.OWN_REQUEST
# RETIRED is one of these states, because such a URL may be fetched again: either only its copies up to a date
# were erased, or its withdrawal was undone. URLs that are still withdrawn have no record.
_ASKED_AGAIN = frozenset(
    {PageState.STORED, PageState.REDIRECTED, PageState.GONE, PageState.FAILED, PageState.RETIRED}
)


def seed_changes(
    pieces: Pieces, admission: Admission, knowledge: SiteKnowledge, *, scope: str, own: Own | None
) -> Iterator[Maker]:
    """Yield functions that build changes. These changes queue the canonical seeds in order.

    If all processes read the same lists, `own` selects the seeds of this process, and the lists must be
    readable more than once. `own` is None if the lists are for this process alone. Shared seeds are first all
    added to the scope (`crawl.scope`), before anything is fetched. Otherwise, links to their sites would be
    dropped.
    """
    if own is not None and scope != "any":
        yield partial(_widen, knowledge, pieces)
    for urls in pieces:
        if taken := urls if own is None else own(urls):
            yield partial(admission.seeds, taken)


def own_seeds(fingerprinter: Fingerprinter, partition: Partition, me: str, urls: Sequence[str]) -> list[str]:
    """Return the URLs (request forms) whose hosts the process `me` owns."""
    places = partition.split(fingerprinter.fingerprints(urls))
    return [urls[place] for place in places.get(me, [])]


def known_changes(
    queued_fingerprints: Callable[[], Iterable[int]],
    all_records: Callable[[], Iterable[tuple[int, PageRecord]]],
    queue_again: Callable[[Sequence[Link]], Change],
) -> Iterator[Maker]:
    """Yield functions that build changes. These changes queue known pages again, unless they are queued already."""
    queued = np.unique(np.fromiter(queued_fingerprints(), np.uint64))
    asked = (
        record.link(fingerprint, record.flags | _AGAIN)
        for fingerprint, record in all_records()
        if record.state in _ASKED_AGAIN and not record.flags & _OWN_REQUEST
    )
    while chunk := list(islice(asked, KNOWN_AT_ONCE)):
        new = ~among(queued, np.array([link.fingerprint for link in chunk], np.uint64))
        if links := list(compress(chunk, new)):
            yield partial(queue_again, links)


def among(ordered: NDArray[np.uint64], some: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return which elements of `some` are in the sorted array `ordered`, as bool of shape (len(some),)."""
    if not len(ordered):
        return np.zeros(len(some), bool)
    places = np.minimum(np.searchsorted(ordered, some), len(ordered) - 1)
    return np.asarray(ordered[places] == some)


def _widen(knowledge: SiteKnowledge, pieces: Pieces) -> Generator[None, None, Change]:
    change = Change()
    for urls in pieces:
        knowledge.widen(change, urls)
        yield
    return change
