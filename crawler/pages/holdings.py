"""Decides which process answers for a URL, from what each process has stored under the URL.

A process stores the pages of the hosts that it owns. With a page, it also stores the files that the page needed,
such as the images that a browser showed and the licence of the site. These files may be on hosts that other
processes own. So several processes may have copies of the same URL.

    the owner has a copy, or withholds its copies        the owner answers
    any other process withholds its copy                 that process answers, so the copy is withheld
    other processes have copies                          the process with the newest copy answers

One process answers each request: it chooses among its own copies, and no list of copies mixes two processes. The
owner comes first, because it alone knows the page's record, and whether the page may be shown.
"""

from collections.abc import Mapping

import msgspec

from crawler.pages.captures import is_copy
from crawler.records import Capture


class HeldCopies(msgspec.Struct, frozen=True):
    """The copies of a URL that a process has: the time of the newest one, or the reason why they are withheld.

    `owner` is true if the process owns the URL. `whole` is false if its newest copy is not a whole page
    (`captures.is_copy`). `fetched_at` is in seconds.
    """

    owner: bool = False
    whole: bool = False
    fetched_at: float = 0.0
    withheld: str = ""


def holding_of(capture: Capture | None, withheld: str, *, owner: bool) -> HeldCopies | None:
    """Return what a process has, given its newest copy; None if it has no copy, and withholds none."""
    if withheld:
        return HeldCopies(owner, withheld=withheld)
    if capture is None:
        return None
    return HeldCopies(owner, is_copy(capture), capture.fetched_at)


def answering(holdings: Mapping[str, HeldCopies | None]) -> str | None:
    """Return the name of the process that answers for a URL, from what each process has; None if no process has a copy.

    Of several equal processes, the first by name answers.
    """
    found = sorted((name, holding) for name, holding in holdings.items() if holding is not None)
    if not found:
        return None
    return max(found, key=lambda item: _rank(item[1]))[0]


def _rank(holding: HeldCopies) -> tuple[bool, bool, bool, float]:
    return holding.owner, bool(holding.withheld), holding.whole, holding.fetched_at
