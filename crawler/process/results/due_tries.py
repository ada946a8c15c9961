"""Queues URLs without a copy again at the start of a run, if their later try is due (`frontier/later_tries.py`).

    records ──► due ──► the first `PROBES` of each host: queued, for one try each
                   └──► the others of the host: held ──► `PROBES` more for each URL that no longer fails

So a host that is still down gets at most `PROBES` of these requests in a run. The URLs that are held at the end of the
run stay due for the next run.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

import numpy as np

from crawler.frontier.later_tries import LaterTries
from crawler.process.results.seed_intake import among
from crawler.records import Link, LinkFlag, PageRecord, PageState
from crawler.storage.commit import Change, Maker
from crawler.urls.canonical import hostname

PROBES = 8  # number of due URLs of a host that are tried before one of them has been answered well
# maximum number of URLs that are held, about 300 bytes each; others are left to the next run
HELD_MAX = 100_000
RECORDS_AT_ONCE = 2000  # number of records examined per commit, which takes a few milliseconds
_AGAIN = LinkFlag.AGAIN
_FAILED = PageState.FAILED


class DueTries:
    """The later tries of one run.

    Args:
        tries: when a URL is tried again.
        requeue: lets a change put URLs back into the queues, for one try each.
    """

    def __init__(self, tries: LaterTries, requeue: Callable[[Sequence[Link], Change], None]) -> None:
        self._tries = tries
        self._requeue = requeue
        self._probes: dict[str, int] = {}  # host name -> number of its URLs that were queued as probes
        self._held: dict[str, list[Link]] = {}
        self._held_count = 0

    def changes(
        self,
        records: Callable[[], Iterable[tuple[int, PageRecord]]],
        is_placed: Callable[[int], bool],
        queued_fingerprints: Callable[[], Iterable[int]],
        now: float,
    ) -> Iterator[Maker]:
        """Yield functions that build changes. These changes queue the first due URLs of each host.

        `is_placed` returns whether the schedule has a URL, so that it is not queued too.
        """
        queued = np.unique(np.fromiter(queued_fingerprints(), np.uint64))
        rest = iter(records())
        while chunk := list(islice(rest, RECORDS_AT_ONCE)):
            due = [
                record.link(fingerprint, record.flags | _AGAIN)
                for fingerprint, record in chunk
                if self._tries.next_try(record) <= now and not is_placed(fingerprint)
            ]
            is_queued = among(queued, np.array([link.fingerprint for link in due], np.uint64))
            first = [
                link for link, twice in zip(due, is_queued, strict=True) if not twice and self._is_probe(link)
            ]
            yield partial(self._queued, first) if first else Change

    def _queued(self, links: Sequence[Link]) -> Change:
        change = Change(sync=True)
        self._requeue(links, change)
        return change

    def _is_probe(self, link: Link) -> bool:
        """Return whether a due URL is queued now. Otherwise it is held."""
        host = hostname(link.url)
        count = self._probes[host] = self._probes.get(host, 0) + 1
        if count <= PROBES:
            return True
        if self._held_count < HELD_MAX:
            self._held.setdefault(host, []).append(link)
            self._held_count += 1
        return False

    def note(self, change: Change, host: str, after: PageRecord, before: PageRecord | None) -> None:
        """If a URL of a host no longer fails, let `change` queue URLs of the host that were held."""
        held = self._held.get(host, [])
        if not held or before is None or before.state is not _FAILED or after.state is _FAILED:
            return
        self._requeue(held[:PROBES], change)
        self._held_count -= len(held[:PROBES])
        del held[:PROBES]

    def __repr__(self) -> str:
        return f"DueTries({self._held_count} held)"
