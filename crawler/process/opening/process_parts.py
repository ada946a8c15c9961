"""The parts of one process that are opened from its directory. `Stages` opens them, in the order of this list."""

from typing import TYPE_CHECKING

from crawler.due.eliminator import Eliminator
from crawler.frontier.frontier import Frontier
from crawler.pages.page_cache import PageCache
from crawler.process.committing.commits import Commits
from crawler.process.opening.process_context import ProcessContext
from crawler.robots.cache import RobotsCache
from crawler.splitter.inbox import Inbox
from crawler.splitter.outbox import Outbox
from crawler.storage.commit import CommitPoint
from crawler.storage.kv import KeyValue
from crawler.urlfilter.kept_verdicts import KeptVerdicts
from crawler.urlfilter.link_filter import LinkFilter
from crawler.urls.equivalence import Equivalences
from crawler.urls.fingerprint import Fingerprinter

if TYPE_CHECKING:
    from crawler.frontier.refresh.change_intake import ChangeIntake
    from crawler.frontier.refresh.kept_signals import KeptSignals
    from crawler.frontier.refresh.refreshing import Refresh
    from crawler.urls.trace import TraceWriter


class ProcessParts:
    """The open parts. An object that needs several of them takes this object, and keeps only those that it needs.

    `refresh` is None if no page is refetched. `changes` takes the change signals about known pages. `trace` is None if no
    trace is written. `verdicts` is None if the user has supplied no URL filter.
    """

    context: ProcessContext
    store: KeyValue
    equivalences: Equivalences
    fingerprinter: Fingerprinter
    robots: RobotsCache
    pages: PageCache
    due: Eliminator
    refresh: "Refresh | None"
    changes: "ChangeIntake | KeptSignals"
    frontier: Frontier
    outbox: Outbox
    inbox: Inbox
    point: CommitPoint
    commits: Commits
    trace: "TraceWriter | None"
    verdicts: KeptVerdicts | None
    intake: LinkFilter
