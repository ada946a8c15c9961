"""Decides which URLs a sitemap may name (sitemaps.org, "cross submits").

A sitemap may name URLs of its own host, and of any authority whose robots.txt names the sitemap. The host is
taken from the parsed URL and compared as a whole. Each authority is looked up once per sitemap.
"""

from collections.abc import Callable, Generator, Sequence

from crawler.records import FetchTask
from crawler.urls.canonical import authority, hostname, resolve

_AUTHORITIES_MAX = 10_000  # maximum number of authorities that are remembered per sitemap
_LOOKED_UP = 64  # number of URLs converted to their request form between two pauses: about 2 ms

# takes an authority and the URL of a sitemap; returns whether the authority's robots.txt names the sitemap
Names = Callable[[str, str], bool]


class CrossSubmits:
    """Checks the URLs in the sitemap that `fetch_task` fetched.

    `names` returns whether a robots.txt names the sitemap.
    """

    def __init__(self, fetch_task: FetchTask, names: Names) -> None:
        self._map_url = fetch_task.url
        self._hostname = fetch_task.hostname
        # A URL that begins with one of these prefixes is certainly on the host, whatever follows the prefix.
        self._plain = (
            f"http://{fetch_task.hostname}/",
            f"https://{fetch_task.hostname}/",
            f"{authority(fetch_task.url)}/",
        )
        self._names = names
        self._judged: dict[str, bool] = {}
        # Whether the Sitemap lines of a robots.txt were read since the last pause. A robots.txt may have many
        # such lines, so `among` pauses after it has read them.
        self._asked = False

    def among(self, locs: Sequence[str]) -> Generator[None, None, list[str]]:
        """Return the entries of `locs` that the sitemap may name, and invalid entries, which the filter will reject."""
        taken: list[str] = []
        work = 0
        for loc in locs:
            if loc.startswith(self._plain):
                taken.append(loc)
                continue
            # resolved as in the URL filter: `//B/x` is a URL of B
            if self._may_name(resolve(self._map_url, loc)):
                taken.append(loc)
            work += 1
            if work >= _LOOKED_UP or self._asked:
                work, self._asked = 0, False
                yield
        return taken

    def _may_name(self, url: str | None) -> bool:
        if url is None or hostname(url) == self._hostname:
            return True
        of = authority(url)
        found = self._judged.get(of)
        if found is None:
            found, self._asked = self._names(of, self._map_url), True
            if len(self._judged) < _AUTHORITIES_MAX:
                self._judged[of] = found
        return found
