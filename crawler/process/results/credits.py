"""Credit for hubs, whichever process they belong to.

    page P of this process, shown by hub H, is fetched for the first time
        H here               f/H, with the change that holds P's record
        H at another process a link with the flag CREDIT and `via` H to the owner of H, through the outbox

So a credit is as durable as the page that earned it, and is applied exactly once, as links are (`splitter/README.md`).
Only a lost disk can make it count twice. Where H turns out to be a redirect from a page of a third process,
the owner of H passes the credit on; `redirects` counts how often, at most `PASSES_MAX` times.

The message's fingerprint has the bucket of H, which makes H's process its owner, and the changed lower bits of P: a
compaction of the outbox keeps one link of each fingerprint, and each page earns one credit.
"""

from collections.abc import Iterable

from crawler.frontier.refresh.refreshing import Refresh
from crawler.records import Link, LinkFlag
from crawler.splitter.partition import Partition
from crawler.storage.commit import Change

PASSES_MAX = 20
_CREDIT = LinkFlag.CREDIT
_LOW_48 = (1 << 48) - 1
_MARK = 0x4352_0000_0000  # tells a credit from a link of the page itself


class Credits:
    """Gives credits of one process; `me` is its name in the partition, `refresh` None where nothing is asked again."""

    def __init__(self, refresh: Refresh | None, partition: Partition, me: str) -> None:
        self._refresh = refresh
        self._partition = partition
        self._me = me

    def give(self, change: Change, via: int, page: int, now: float) -> None:
        """Credit the page that showed a URL, where `via` is what led to it, with the page that it became."""
        self._give(change, via, (page ^ _MARK) & _LOW_48, now)

    def received(self, change: Change, links: Iterable[Link], now: float) -> None:
        """Take the credits among what another process sent."""
        for link in links:
            change.count("splitter.credits_heard")
            self._give(change, link.via, link.fingerprint & _LOW_48, now, passes=link.redirects + 1)

    def _give(self, change: Change, via: int, mark: int, now: float, passes: int = 0) -> None:
        if self._refresh is None:
            return
        via = self._refresh.outcomes.shown_by(via)
        owner = self._partition.owner(via)
        if owner == self._me:
            change.count("hubs.credited", self._refresh.outcomes.credit_hub(via, now, change))
        elif passes <= PASSES_MAX:
            link = Link(via & ~_LOW_48 | mark, "", via=via, redirects=passes, flags=_CREDIT)
            change.foreign.append((owner, [link]))
            change.count("splitter.credits_told")

    def __repr__(self) -> str:
        return f"Credits(of {self._me})"
