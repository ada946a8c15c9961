"""For `crawler why`: finds a stored page whose link to a URL was not followed because of `nofollow`.

A crawl does not store links that it does not follow because of `nofollow`, so the stored pages are searched.
Only pages whose bytes contain the last part of the URL are parsed.
"""

import itertools
from pathlib import Path

from crawler.audit.collect import html_pages
from crawler.errors import DamageError
from crawler.export.archives import opened
from crawler.export.page_tasks import read_known
from crawler.export.stored_pages import StoredPages
from crawler.urls.page_urls import resolved

_FOLLOW = "`--set robots.nofollow_links=false` follows such links."


def unfollowed_facts(path: Path, url: str, pages_max: int) -> dict[str, str]:
    """Return the verdict of `why` and the page with the link if a link to `url` was not followed, otherwise {}.

    `url` is in request form. At most `pages_max` stored pages are searched. Pages that cannot be read are not
    reported here, because `crawler report` and `crawler check` name them.
    """
    part = _written_part(url)
    with opened(path) as crawled:
        pages = StoredPages(crawled.config, want_all=True)
        folders = [archive.folder for archive in crawled.archives]
        for known in itertools.islice(html_pages(crawled), pages_max):
            try:
                stored = read_known(folders, known)
                if stored is None or part not in stored.content:
                    continue
                found = pages.read(stored, known.flags)
            except DamageError:
                continue
            if found is None or not (found.nofollow or crawled.config.robots.nofollow_links):
                continue
            links = map(crawled.fingerprint, resolved(found, found.hrefs))
            if crawled.fingerprint(url) in links:
                page = known.row["url"]
                verdict = f"Never fetched: the link on {page} has rel=nofollow; {_FOLLOW}"
                if found.nofollow:
                    verdict = f"Never fetched: {page} says nofollow for all of its links."
                return {"verdict": verdict, "unfollowed_on": page}
    return {}


def _written_part(url: str) -> bytes:
    """Return the part of `url` that a page with a link to it must contain; b"" if it can be written in several ways."""
    last = url.partition("?")[0].rstrip("/").rpartition("/")[2]
    return last.encode() if last.replace("-", "").replace("_", "").replace(".", "").isalnum() else b""
