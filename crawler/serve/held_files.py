"""Finds the copies of a URL that are stored here, although another process owns the URL (`pages/holdings.py`)."""

from crawler.consent.use_rule import UseRule
from crawler.pages.archive import Archive
from crawler.pages.holdings import HeldCopies, answering
from crawler.serve.copy_selection import newest_held
from crawler.serve.interfaces import Located, ServedCrawl


class HeldFiles:
    """The files that the processes of `crawl` which are served here have stored for their pages.

    `use_rule` says which copies this server may use.
    """

    def __init__(self, crawl: ServedCrawl, use_rule: UseRule | None) -> None:
        self._crawl, self._use_rule = crawl, use_rule

    def find(self, url: str) -> tuple[Located | None, HeldCopies | None]:
        """Return the place of the copies that do not belong to the owner of a URL; (None, None) if there are none."""
        fingerprint = self._crawl.locate(url).fingerprint
        archives = self._crawl.others(fingerprint)
        holdings = {name: self._copies(archive, fingerprint, url) for name, archive in archives.items()}
        name = answering(holdings)
        return (None, None) if name is None else (Located(fingerprint, archives[name], name), holdings[name])

    def _copies(self, archive: Archive, fingerprint: int, url: str) -> HeldCopies | None:
        record = Archive.record(archive, fingerprint)
        return newest_held(archive, fingerprint, url, record, self._use_rule, owner=False)[1]
