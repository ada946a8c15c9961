"""Chooses the copy of a URL that a process has, and says whether the process withholds it, for `get` and `why`."""

from typing import TYPE_CHECKING

from crawler.pages.holdings import HeldCopies
from crawler.process.opening.stages import Stages
from crawler.records import Capture
from crawler.serve.copy_selection import newest_held

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
        return newest_held(
            self._pages,
            fingerprint,
            url,
            self._pages.record(fingerprint),
            rule,
            owner=self._context.topology.partition.owner(fingerprint) == self._context.name,
            barred=self._frontier.views.withholding_line(url),
            with_noarchive=with_noarchive,
        )
