"""`crawler recover`: finds links that a process has lost, by searching the archives of its peers.

A URL that a process received from another process is either a seed, or a link or the target of a redirect in
the archive of that other process. So each of the other processes reads its own archive once, selects the
links that the lost process owned, and puts them into its outbox. The last commit restarts the numbering of
the outbox, and forgets which links the lost process had confirmed. Until the last commit, the peers refuse
the lost process, because they have recorded more confirmed links than it has. So an interrupted recovery must
be repeated.

The lost process may have lost its whole folder, or its store may have been replaced by an earlier state
(`behind_peers.py`). Links between pages of the lost process were stored only in its folder, so the lost process
finds these links again when it fetches the pages.
"""

from crawler.errors import UsageError
from crawler.process.committing.counters import RECOVERIES
from crawler.process.opening.stages import Stages
from crawler.process.results.sent_seeds import forget_sent_seeds
from crawler.records import Link
from crawler.storage.commit import Change
from crawler.upkeep.stored_links import StoredLinks

_LINKS_AT_ONCE = 10_000


class Recovery:
    """Searches one archive for links whose owner is `lost`, a peer of this process, and queues the links for it."""

    def __init__(self, stages: Stages, lost: str) -> None:
        if lost not in stages.topology.peers:
            raise UsageError(f"{lost!r} is not among the processes {', '.join(stages.topology.names)}")
        self._lost = lost
        self._outbox, self._commits, self._knowledge = (
            stages.outbox,
            stages.commits,
            stages.decisions.knowledge,
        )
        self._store = stages.store
        self._stored = StoredLinks(stages)
        self._links: dict[int, Link] = {}
        self._queued: set[int] = set()
        self._told = False

    @property
    def problems(self) -> list[str]:
        """Return a line for each page that could not be read."""
        return self._stored.problems

    def run(self) -> int:
        """Read the whole archive. Return the number of links that were queued."""
        for link in self._stored.owned_by(self._lost):
            if link.fingerprint not in self._queued:
                self._queued.add(link.fingerprint)
                self._links[link.fingerprint] = link
            if len(self._links) >= _LINKS_AT_ONCE:
                self._commit()
        self._commit()
        self._outbox.start_over(self._lost)
        change = Change(sync=True)
        change.count(RECOVERIES)
        forget_sent_seeds(self._store, change)
        self._commits.commit_now(change)
        return len(self._queued)

    def _commit(self) -> None:
        """Queue the links found, together with the scope, which the lost process must learn again."""
        links, self._links = list(self._links.values()), {}
        change = Change(sync=True)
        if not self._told:
            self._told = True
            self._knowledge.announce(change, [self._lost])
        if links:
            change.foreign.append((self._lost, links))
            change.count("urls.to_outbox", len(links))
            change.count("urls.resharded", len(links))
        self._commits.commit_now(change)
