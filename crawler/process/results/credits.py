"""Gives credit to hubs, even if they belong to other processes.

    When page P of this process, linked from hub H, is fetched for the first time:
        H is in this process    the credit goes to f/H, with the change that has P's record
        H is in another         a link with the flag CREDIT and `via` H goes to the owner of H, through the outbox

If no page has shown P, a change signal has named it. Then P is counted, and no page gets a credit.

A credit is committed together with the page that earned it. So it is as durable as that page, and is applied
exactly once, like a link (`splitter/README.md`). Only after the loss of a disk can a credit be counted twice.
If the hub H is only a redirect to the new page P, the credit goes to the page that links to H. If the page
that links to H belongs to a third process, the owner of H passes the credit on to that process. A credit is
passed on at most `PASSES_MAX` times. The field `redirects` of the message counts the passes.

The fingerprint of the message has two parts. The upper bits are the bucket of H, which selects the process of
H. The lower bits are those of the fingerprint of P, changed so that the message is not mistaken for a link to
P. A compaction of the outbox keeps only one link per fingerprint. Credits for different pages P have
different fingerprints, so a compaction removes none of them.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from crawler.records import Link, LinkFlag
from crawler.splitter.partition import Partition
from crawler.storage.commit import Change

if TYPE_CHECKING:
    from crawler.frontier.refresh.refreshing import Refresh

PASSES_MAX = 20
_CREDIT = LinkFlag.CREDIT
_LOW_48 = (1 << 48) - 1
_MARK = 0x4352_0000_0000  # distinguishes the fingerprint of a credit from that of a link to the page


class Credits:
    """Gives the credits that the process `me` owes to hubs. `refresh` is None if no page is refetched."""

    def __init__(self, refresh: "Refresh | None", partition: Partition, me: str) -> None:
        self._refresh = refresh
        self._partition = partition
        self._me = me

    def give(self, change: Change, via: int, page: int, now: float) -> None:
        """Credit the hub `via` for its link to `page`, which was fetched for the first time."""
        self._give(change, via, (page ^ _MARK) & _LOW_48, now)

    def received(self, change: Change, links: Iterable[Link], now: float) -> None:
        """Apply credits that another process sent. They are sent in the form of links."""
        for link in links:
            change.count("splitter.credits_heard")
            self._give(change, link.via, link.fingerprint & _LOW_48, now, passes=link.redirects + 1)

    def _give(self, change: Change, via: int, mark: int, now: float, passes: int = 0) -> None:
        if self._refresh is None:
            return
        via = self._refresh.outcomes.shown_by(via)
        if not via:
            self._refresh.news.found("signal", change)
            return
        owner = self._partition.owner(via)
        if owner == self._me:
            change.count("hubs.credited", self._refresh.outcomes.credit_hub(via, now, change))
        elif passes <= PASSES_MAX:
            link = Link(via & ~_LOW_48 | mark, "", via=via, redirects=passes, flags=_CREDIT)
            change.foreign.append((owner, [link]))
            change.count("splitter.credits_told")

    def __repr__(self) -> str:
        return f"Credits(of {self._me})"
