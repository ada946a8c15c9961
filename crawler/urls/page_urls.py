"""Resolves the URLs on a page. The crawl, exports, reports and the Python API use the same rules.

The query of a URL is encoded in the encoding of the page, and everything else in UTF-8.
"""

from collections.abc import Iterable

import ada_url

from crawler.records import Extracted
from crawler.urls.canonical import resolve


def base_url(url: str, href: str) -> str:
    """Return the base URL that the attribute `href` of a base element sets; "" if this is not an http(s) URL.

    The first base element of a page that sets a base URL counts. `url` is the URL of the page.
    """
    try:
        base = ada_url.join_url(url, href)
    except ValueError:
        return ""
    return base if base.startswith(("http://", "https://")) else ""


def resolved(page: Extracted, raw_urls: Iterable[str]) -> list[str]:
    """Return the canonical forms of URLs of the page, in order and without duplicates; leave out those without one."""
    urls = (resolve(page.base, raw_url, encoding=page.encoding) for raw_url in raw_urls)
    return list(dict.fromkeys(url for url in urls if url is not None))
