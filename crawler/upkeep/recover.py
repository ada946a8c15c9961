"""`crawler recover`: bring the links back that a process has lost, from the archives of its peers.

Every URL that a process received from others is a link of a page that one of them has
archived, the target of a redirect there, or a seed. So each of the others reads its
archive once, selects the links that the lost process owned, and puts them into its
outbox. The last commit lets the outbox start over, and forget what the process had
confirmed: until then the peers refuse it, so an interrupted recovery is repeated.

The process may have lost its whole folder, or have been put back to an earlier state
(`behind.py`). Only it knew the links between its own pages: it finds them by fetching
those pages again.
"""

from crawler.errors import DamageError, UsageError
from crawler.export.stored_pages import StoredPages
from crawler.process.opening.stages import Stages
from crawler.records import Capture, Link, LinkFlag, PageRecord
from crawler.storage.commit import Change

_LINKS_AT_ONCE = 10_000


class Recovery:
    """Finds the links in one archive that the process `lost` owned, and queues them for it.

    Raises:
        UsageError: `lost` is not a peer of this process.
    """

    def __init__(self, stages: Stages, lost: str) -> None:
        if lost not in stages.topology.peers:
            raise UsageError(f"{lost!r} is not among the processes {', '.join(stages.topology.names)}")
        self._stages = stages
        self._lost = lost
        self._pages = StoredPages(stages.config)
        self._links: dict[int, Link] = {}
        self._queued: set[int] = set()
        self.problems: list[str] = []
        self._told = False

    def run(self) -> int:
        """Read the whole archive; return the number of links queued."""
        stages = self._stages
        self._take_seeds()
        for fingerprint, capture in stages.pages.newest_captures(withdrawn=True):
            record = stages.pages.record(fingerprint)
            if record is not None:
                self._take_page(fingerprint, record, capture)
        for fingerprint, read in stages.pages.stored_records():
            record = read()
            if record.location:
                self._take(record.url, [record.location], fingerprint, record.depth, LinkFlag.REDIRECT)
        self._commit()
        stages.outbox.start_over(self._lost)
        stages.commits.commit_now(Change(sync=True))
        return len(self._queued)

    def _take_seeds(self) -> None:
        seeds = self._stages.config.seeds
        if seeds:
            self._take(seeds[0], list(seeds), 0, 0, LinkFlag.SEED)

    def _take_page(self, fingerprint: int, record: PageRecord, capture: Capture) -> None:
        try:
            urls = self._pages.links(self._stages.pages.read(capture), record.flags)
        except DamageError as error:
            self.problems.append(str(error))
            return
        self._take(record.url, urls, fingerprint, record.depth + 1, 0)

    def _take(self, base: str, urls: list[str], via: int, depth: int, flags: int) -> None:
        """Note the accepted URLs that the lost process owned."""
        accepted = self._stages.intake.filter_links(base, urls, flags=flags)
        partition = self._stages.topology.partition
        for place in partition.split(accepted.fingerprints).get(self._lost, []):
            fingerprint = int(accepted.fingerprints[place])
            if fingerprint not in self._queued:
                self._queued.add(fingerprint)
                self._links[fingerprint] = Link(fingerprint, accepted.urls[place], depth, via, 0, flags)
        if len(self._links) >= _LINKS_AT_ONCE:
            self._commit()

    def _commit(self) -> None:
        """Queue the links found, and send the scope, which the lost process must learn again."""
        links, self._links = list(self._links.values()), {}
        change = Change(sync=True)
        if not self._told:
            self._told = True
            self._stages.knowledge.announce(change, [self._lost])
        if links:
            change.foreign.append((self._lost, links))
            change.count("urls.to_outbox", len(links))
            change.count("urls.resharded", len(links))
        self._stages.commits.commit_now(change)
