"""Chooses the copy of a URL that a process has, and says whether the process withholds it, for `get` and `why`."""

from typing import TYPE_CHECKING

from crawler.pages.holdings import HeldCopies, holding_of
from crawler.process.opening.stages import Stages
from crawler.records import Capture
from crawler.serve.copy_selection import withheld

if TYPE_CHECKING:
    from crawler.consent.use_rule import UseRule


class OwnCopies:
    """The copies of one process. URLs are in request form."""

    def __init__(self, stages: Stages) -> None:
        self._context, self._pages, self._frontier = stages.context, stages.pages, stages.frontier

    def newest(
        self, url: str, fingerprint: int, *, with_noarchive: bool = False, rule: "UseRule | None" = None
    ) -> tuple[Capture | None, HeldCopies | None]:
        """Return the newest copy of a URL, and what it means for other processes; (None, None) if there is none.

        With `with_noarchive`, show pages that ask not to be archived. `rule` says which copies may be used.
        """
        record = self._pages.record(fingerprint)
        capture = self._pages.newest_capture(fingerprint, record)
        withdrawn = self._pages.withdrawn(fingerprint, url, capture)
        asked = (None, None) if with_noarchive else (record, capture)
        why = self._frontier.views.withholding_line(url) or withheld(*asked, withdrawn)
        if not why and capture is not None and rule is not None:
            refusal = rule.refusal(self._pages.store, fingerprint, capture, record)
            why = "" if refusal is None else refusal.why
        owner = self._context.topology.partition.owner(fingerprint) == self._context.name
        return capture, holding_of(capture, why, owner=owner)
