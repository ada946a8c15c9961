"""The way of the seeds from their pieces to the frontier: one change after the other.

command line, file, configuration --> crawl/seeds.py: canonical, in pieces
    one process, or a node         Seeds                     every seed is a link like any other
    several under a supervisor     SeedFile, read by all     each takes its own; the scope learns all first

With `crawl.timestamping` known pages go the same way first, back into the queues
of their hosts: each once, unless it waits there already.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import compress, islice

import numpy as np
from numpy.typing import NDArray

from crawler.process.stages import Stages
from crawler.records import Link, LinkFlag, PageRecord, PageState
from crawler.storage.commit import Change, Maker

Pieces = Iterable[Sequence[str]]
KNOWN_AT_ONCE = 1000  # known pages queued for one commit
_AGAIN, _OWN_WAY = int(LinkFlag.AGAIN), int(LinkFlag.OWN_WAY)
_ASKED_AGAIN = frozenset({PageState.STORED, PageState.REDIRECTED, PageState.GONE, PageState.FAILED})


def seed_changes(stages: Stages, pieces: Pieces, *, shared: bool) -> Iterator[Maker]:
    """What makes the changes that bring canonical seeds to the frontier, in order.

    `shared`: all processes read the same pieces, which can be read more than once.
    The scope must span them all before anything is fetched, else links would be dropped.
    """
    if shared and stages.config.crawl.scope != "any":
        yield partial(_widen, stages, pieces)
    for urls in pieces:
        own = _own(stages, urls) if shared else urls
        if own:
            yield partial(stages.admission.seeds, own)


def known_changes(stages: Stages) -> Iterator[Maker]:
    """What makes the changes that put known pages into the queues once more."""
    queued = stages.queued()
    asked = (
        _again(fingerprint, record)
        for fingerprint, record in stages.pages.all_records()
        if record.state in _ASKED_AGAIN and not record.flags & _OWN_WAY
    )
    while chunk := list(islice(asked, KNOWN_AT_ONCE)):
        new = ~_among(queued, np.array([link.fingerprint for link in chunk], np.uint64))
        if links := list(compress(chunk, new)):
            yield partial(stages.queue_again, links)


def _among(ordered: NDArray[np.uint64], some: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which of `some` are in a sorted array: bool, shape (len(some),)."""
    if not len(ordered):
        return np.zeros(len(some), bool)
    places = np.minimum(np.searchsorted(ordered, some), len(ordered) - 1)
    return np.asarray(ordered[places] == some)


def _again(fingerprint: int, record: PageRecord) -> Link:
    flags = record.flags | _AGAIN
    return Link(fingerprint, record.url, record.depth, record.via, record.redirects, flags)


def _widen(stages: Stages, pieces: Pieces) -> Generator[None, None, Change]:
    change = Change()
    for urls in pieces:
        stages.learned.widen(change, urls)
        yield
    return change


def _own(stages: Stages, urls: Sequence[str]) -> list[str]:
    """Those of hosts that this process owns."""
    places = stages.topology.partition.split(stages.fingerprinter.fingerprints(urls))
    return [urls[place] for place in places.get(stages.name, [])]
