"""Decides which URLs a sitemap may name (sitemaps.org, "cross submits").

A sitemap may name URLs of its own host, and of any authority whose robots.txt names the sitemap
(`process/fetching/submitters.py` finds these authorities). The host is taken from the parsed URL and compared as a
whole.
"""

from collections.abc import Callable, Generator, Iterator, Sequence

from crawler.records import FetchTask
from crawler.urls.canonical import authority, hostname, resolve

_LOOKED_UP = 64  # number of URLs converted to their request form between two pauses: about 2 ms


def other_authorities(
    fetch_task: FetchTask, locs: Sequence[str], in_scope: Callable[[str], bool]
) -> Iterator[str]:
    """Yield for each entry of a sitemap its authority, if it is in scope and on another host; "" otherwise."""
    plain = _on_host(fetch_task)
    for loc in locs:
        if loc.startswith(plain):
            continue
        url = resolve(fetch_task.url, loc)
        is_other = url is not None and hostname(url) != fetch_task.hostname and in_scope(url)
        yield authority(url) if url is not None and is_other else ""


def _on_host(fetch_task: FetchTask) -> tuple[str, ...]:
    """Return prefixes of URLs that are certainly on the host of a fetch task, whatever follows the prefix."""
    name = fetch_task.hostname
    return f"http://{name}/", f"https://{name}/", f"{authority(fetch_task.url)}/"


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
            # resolved as in the URL filter: `//B/x` is a URL of B
            if self._may_name(resolve(self._map_url, loc)):
                taken.append(loc)
            work += 1
            if work >= _LOOKED_UP:
                work = 0
                yield
        return taken

    def _may_name(self, url: str | None) -> bool:
        return url is None or hostname(url) == self._hostname or authority(url) in self._submitters
