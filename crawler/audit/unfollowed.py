"""For `crawler why`: finds a stored page whose link to a URL was not followed because of `nofollow`.

A crawl does not store links that it does not follow because of `nofollow`, so the stored pages are searched.
Only pages whose bytes contain the last part of the URL are parsed.
"""

import itertools
from pathlib import Path
from typing import NamedTuple

from crawler.audit.collect import html_pages
from crawler.errors import DamageError
from crawler.export.archives import Crawled, opened
from crawler.export.page_tasks import read_known
from crawler.export.stored_pages import StoredPages
from crawler.pages.formats.rows import Known
from crawler.urls.page_urls import resolved


class Unfollowed(NamedTuple):
    """A link that was not followed: its page, and whether nofollow applies to all links of the page."""

    page: str
    whole_page: bool

    def sentence(self) -> str:
        """Return the sentence that `crawler why` prints about this link."""
        if self.whole_page:
            return f"Never fetched: {self.page} says nofollow for all of its links."
        return (
            f"Never fetched: the link on {self.page} has rel=nofollow; "
            "`--set robots.nofollow_links=false` follows such links."
        )


def unfollowed_link(path: Path, url: str, pages_max: int) -> Unfollowed | None:
    """Return a link to `url` (request form) that was not followed. At most `pages_max` stored pages are searched."""
    with opened(path) as crawled:
        search = _Search(crawled, url)
        found = map(search.of_page, itertools.islice(html_pages(crawled), pages_max))
        return next((each for each in found if each is not None), None)


def unfollowed_facts(path: Path, url: str, pages_max: int) -> dict[str, str]:
    """Return the verdict of `why` and the page with the link if there is a link that was not followed, otherwise {}."""
    link = unfollowed_link(path, url, pages_max)
    return {} if link is None else {"verdict": link.sentence(), "unfollowed_on": link.page}


class _Search:
    def __init__(self, crawled: Crawled, url: str) -> None:
        self._crawled = crawled
        self._fingerprint = crawled.fingerprint(url)
        self._pages = StoredPages(crawled.config, want_all=True)
        self._folders = [archive.folder for archive in crawled.archives]
        self._part = _written_part(url)

    def of_page(self, known: Known) -> Unfollowed | None:
        """Return the page's link to the URL if it was not followed because of `nofollow`."""
        try:
            stored = read_known(self._folders, known)
            if stored is None or self._part not in stored.content:
                return None
            found = self._pages.read(stored, known.flags)
        # not reported here, because `crawler report` and `crawler check` name unreadable pages
        except DamageError:
            return None
        if found is None or not (found.nofollow or self._crawled.config.robots.nofollow_links):
            return None
        links = resolved(found, found.hrefs)
        if any(self._crawled.fingerprint(link) == self._fingerprint for link in links):
            return Unfollowed(known.row["url"], found.nofollow)
        return None


def _written_part(url: str) -> bytes:
    """Return the part of `url` that a page with a link to it must contain; b"" if it can be written in several ways."""
    last = url.partition("?")[0].rstrip("/").rpartition("/")[2]
    return last.encode() if last.replace("-", "").replace("_", "").replace(".", "").isalnum() else b""
