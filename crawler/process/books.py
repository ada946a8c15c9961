"""The books of a process: the laws that its durable counters obey.

    accepted + received + resharded = cache_hits + to_outbox + to_due
    to_due              = pending + known + new
    new                 = done + todo + parked          (what is in flight is still to do)

and between processes

    to_outbox + scope_told = sent + waiting + repeated
    received + scope_heard = applied

`accepted` passed the URL filter, `received` came from other processes. A cache
hit is a link that the CLOCK cache, or the DUE's set of pending fingerprints,
has met before. `resharded` makes the books whole after hosts have moved to or
from this process. Seeds are links like any other. Every group of the commit
point carries its counts, so the laws hold after a crash too.
"""

from collections.abc import Mapping

from crawler.records import DueCounts, FrontierCounts, SplitterCounts


def conservation(counters: Mapping[str, int], due: DueCounts, frontier: FrontierCounts) -> list[str]:
    """The laws that do not hold, a line each; [] if all do."""
    c = counters.get
    laws = {
        "accepted + received + resharded = cache_hits + to_outbox + to_due": (
            c("urls.accepted", 0) + c("urls.received", 0) + c("urls.resharded", 0),
            c("urls.cache_hits", 0) + c("urls.to_outbox", 0) + c("urls.to_due", 0),
        ),
        "to_due = pending + known + new": (
            c("urls.to_due", 0),
            due.pending + due.known + due.new,
        ),
        "new = done + todo + parked": (due.new, c("urls.done", 0) + frontier.todo + frontier.parked),
    }
    return [f"{law}: {left} != {right}" for law, (left, right) in laws.items() if left != right]


def splitter_conservation(counters: Mapping[str, int], splitter: SplitterCounts | None) -> list[str]:
    """The laws of the links between processes that do not hold; `splitter` is None in a crawl of one process."""
    if splitter is None:
        return []
    c = counters.get
    laws = {
        "to_outbox + scope_told = sent + waiting + repeated": (
            c("urls.to_outbox", 0) + splitter.scope_told,
            splitter.sent + splitter.waiting + splitter.repeated,
        ),
        "received + scope_heard = applied": (
            c("urls.received", 0) + splitter.scope_heard,
            splitter.applied,
        ),
    }
    return [f"{law}: {left} != {right}" for law, (left, right) in laws.items() if left != right]
