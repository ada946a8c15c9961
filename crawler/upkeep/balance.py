"""Corrects the counters of messages to peers after a store was damaged.

The outbox and the counters are stored under different keys, so damage may have removed one and not the other.
Then the counters would contradict the outbox forever, and a reshard would refuse the crawl.
"""

from crawler.process.committing.counters import RECOVERIES
from crawler.process.opening.stages import Stages
from crawler.records import SplitterCounts
from crawler.storage.commit import Change

_TOLD = ("splitter.scope_told", "splitter.signals_told", "splitter.credits_told")


def balance(stages: Stages) -> None:
    """Set the counters of messages to peers so that they agree with the outbox (`process/committing/counters.py`)."""
    counts = stages.views.splitter_counts()
    if counts is None:
        return
    change = Change(sync=True)
    change.count(RECOVERIES)
    for name, difference in corrections(counts, stages.point.counters["urls.to_outbox"]).items():
        change.count(name, difference)
    stages.commits.commit_now(change)


def corrections(counts: SplitterCounts, to_outbox: int) -> dict[str, int]:
    """Return what to add to each counter.

    If there are more notices than messages went through the outbox, all messages count as links.
    """
    passed = counts.sent + counts.waiting + counts.repeated
    told = dict(zip(_TOLD, (counts.scope_told, counts.signals_told, counts.credits_told), strict=True))
    forgotten = {name: -told[name] for name in _TOLD} if sum(told.values()) > passed else {}
    links = passed - sum(told.values()) - sum(forgotten.values())
    # the links to peers are also in the equation of all links, in which `resharded` balances them
    return {**forgotten, "urls.to_outbox": links - to_outbox, "urls.resharded": links - to_outbox}
