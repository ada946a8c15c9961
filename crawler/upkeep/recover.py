"""`crawler recover`: finds links that a process has lost, by searching the archives of its peers.

A URL that a process received from another process is a seed, or a link or the target of a redirect in the archive
of that other process. The other process has stored the seeds that it has sent (`process/results/sent_seeds.py`).
So each of the other processes reads these seeds and its own archive once, selects the links that the lost process
owned, and puts them into its outbox. The last commit restarts the numbering of the outbox, and forgets which links
the lost process had confirmed. Until the last commit, the peers refuse the lost process, because they have recorded
more confirmed links than it has. So an interrupted recovery must be repeated.

The lost process may have lost its whole folder, or its store may have been replaced by an earlier state
(`behind_peers.py`). Links between pages of the lost process were stored only in its folder, so the lost process
finds these links again when it fetches the pages.
"""

from collections.abc import Callable

from crawler.errors import UsageError
from crawler.process.committing.counters import RECOVERIES
from crawler.process.opening.stages import Stages
from crawler.process.results.sent_seeds import forget_sent_seeds
from crawler.records import Link
from crawler.storage.commit import Change
from crawler.upkeep.stored_links import StoredLinks

_LINKS_AT_ONCE = 10_000


def recover_links(
    stages: Stages, lost: str, before: Callable[[], None] = lambda: None
) -> tuple[int, list[str]]:
    """Search the archive of one process for links whose owner is `lost`, one of its peers, and queue them for it.

    Return the number of links that were queued, and a line for each page that could not be read. `before` is
    called before each change.
    """
    if lost not in stages.topology.peers:
        raise UsageError(f"{lost!r} is not among the processes {', '.join(stages.topology.names)}")
    stored, queued, links = StoredLinks(stages), set[int](), list[Link]()
    change = Change(sync=True)
    stages.decisions.knowledge.announce(change, [lost])  # the lost process must learn the scope again
    for link in stored.owned_by(lost):
        if link.fingerprint not in queued:
            queued.add(link.fingerprint)
            links.append(link)
        if len(links) >= _LINKS_AT_ONCE:
            before()
            _queue(stages, lost, change, links)
            change, links = Change(sync=True), []
    before()
    _queue(stages, lost, change, links)
    stages.outbox.start_over(lost)
    change = Change(sync=True)
    change.count(RECOVERIES)
    forget_sent_seeds(stages.store, change)
    stages.commits.commit_now(change)
    return len(queued), stored.problems


def _queue(stages: Stages, lost: str, change: Change, links: list[Link]) -> None:
    """Add links to a change, and commit it."""
    if links:
        change.foreign.append((lost, links))
        change.count("urls.to_outbox", len(links))
        change.count("urls.resharded", len(links))
    stages.commits.commit_now(change)
