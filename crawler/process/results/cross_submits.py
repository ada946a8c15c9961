"""Decides which URLs a sitemap may name (sitemaps.org, "cross submits").

A sitemap may name URLs of its own host, and of any authority whose robots.txt names the sitemap
(`process/fetching/submitters.py` finds these authorities). The host is taken from the parsed URL and compared as a
whole.
"""

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import lru_cache

from crawler.records import FetchTask
from crawler.urls.canonical import LENGTH_MAX, authority, hostname, resolve

_LOOKED_UP = 64  # number of URLs converted to their request form between two pauses: about 2 ms
# Matches the origin of an absolute URL. What follows it cannot change the authority.
_ORIGIN = re.compile(r"https?://[-.0-9:a-z]{1,80}/")
# A longer URL may have no request form: each character may become four escaped bytes.
_PLAIN_LENGTH_MAX = LENGTH_MAX // 12


def other_authorities(
    fetch_task: FetchTask, locs: Sequence[str], in_scope: Callable[[str], bool]
) -> Iterator[str]:
    """Yield for each entry of a sitemap its authority if it is in scope, on another host and new; "" otherwise."""
    plain = _on_host(fetch_task)
    found: set[str] = set()
    for loc in locs:
        if loc.startswith(plain):
            continue
        site, host = _site_of(fetch_task.url, loc)
        is_new = host not in ("", fetch_task.hostname) and site not in found
        if is_new and (url := resolve(fetch_task.url, loc)) is not None and in_scope(url):
            found.add(site)
            yield site
        else:
            yield ""


def _on_host(fetch_task: FetchTask) -> tuple[str, ...]:
    """Return prefixes of URLs that are certainly on the host of a fetch task, whatever follows the prefix."""
    name = fetch_task.hostname
    return f"http://{name}/", f"https://{name}/", f"{authority(fetch_task.url)}/"


def _site_of(map_url: str, loc: str) -> tuple[str, str]:
    """Return the authority and the hostname of an entry of the sitemap `map_url`, both "" if the entry is invalid."""
    origin = _ORIGIN.match(loc)
    if origin is not None and len(loc) <= _PLAIN_LENGTH_MAX:
        return _parsed(map_url, origin[0])
    return _parsed.__wrapped__(map_url, loc)


@lru_cache(maxsize=1024)
def _parsed(base: str, loc: str) -> tuple[str, str]:
    # resolved as in the URL filter: `//B/x` is a URL of B
    url = resolve(base, loc)
    return ("", "") if url is None else (authority(url), hostname(url))


class CrossSubmits:
    """Checks the URLs in the sitemap that `fetch_task` fetched. The robots.txt of each of `submitters` names it."""

    def __init__(self, fetch_task: FetchTask, submitters: Sequence[str]) -> None:
        self._map_url = fetch_task.url
        self._hostname = fetch_task.hostname
        self._plain = _on_host(fetch_task)
        self._submitters = frozenset(submitters)

    def among(self, locs: Sequence[str]) -> Generator[None, None, list[str]]:
        """Return the entries of `locs` that the sitemap may name, and invalid entries, which the filter will reject."""
        taken: list[str] = []
        work = 0
        for loc in locs:
            if loc.startswith(self._plain):
                taken.append(loc)
                continue
            site, host = _site_of(self._map_url, loc)
            if host in ("", self._hostname) or site in self._submitters:
                taken.append(loc)
            work += 1
            if work >= _LOOKED_UP:
                work = 0
                yield
        return taken
