"""Estimates the remaining work of a crawl from its growth in about the last minute.

On average, each URL that is done adds `brings` new URLs. `brings` is the number of links that the DUE found
to be new, without seeds, divided by the number of URLs that are done. If `brings` is below 1, the waiting
URLs and all URLs that will follow from them form a geometric series with this sum:

    left = (todo + pending * share of pending links that are new) / (1 - brings)

The sum is the expected size of a subcritical branching process (Watson and Galton 1875). If `brings` is at
least `GROWS`, the end cannot be estimated, because the crawl grows or nearly does. The time is `left` times the
time per URL at the present speed, or the time that the slowest host takes if that is longer. If the run reaches
`crawl.max_pages` before, the estimate is the time until then.
"""

import math
from collections.abc import Mapping

import msgspec

from crawler.records import SlowestHost
from crawler.wording import several

# If a page leads to this many new URLs or more on average, the number of URLs that are still to be found is
# too uncertain to be stated.
GROWS = 0.95


class Eta(msgspec.Struct, frozen=True):
    """An estimate: `urls` is the number of URLs that wait, including the pending links that are probably new.

    `left` includes the URLs that are still to be found, and `seconds` is the time until all of them are fetched.
    If the time depends on one host, `host` is its name; otherwise, `seconds` follows from the present speed. If
    `limited`, the run ends earlier, because only `left` more pages may be fetched in it.
    While the crawl grows, `left` and `seconds` are None. `brings` is the number of new URLs per page; it is None
    if no URL was done in the last minute.
    """

    urls: float
    brings: float | None = None
    left: float | None = None
    seconds: float | None = None
    host: str = ""
    limited: bool = False


def eta(
    todo: int,
    pending: int,
    recent: Mapping[str, float],
    slowest: SlowestHost | None = None,
    pages_left: int | None = None,
) -> Eta:
    """Estimate the remaining work.

    `recent` is the growth of `done`, `new` and `known` over `span` seconds. `pages_left` is the number of pages
    that may still be fetched in this run; None if there is no limit.
    """
    done, new, known = (recent.get(name, 0.0) for name in ("done", "new", "known"))
    urls = todo + pending * (new / (new + known) if new + known > 0.0 else 1.0)
    if done <= 0.0:
        return Eta(urls, None, None, slowest.seconds, slowest.host) if slowest is not None else Eta(urls)
    brings = new / done
    left = urls / (1.0 - brings) if brings < GROWS else math.inf
    if pages_left is not None and pages_left < left:
        return Eta(urls, brings, pages_left, pages_left * recent["span"] / done, limited=True)
    if left == math.inf:
        return Eta(urls, brings)
    seconds = left * recent["span"] / done
    if slowest is not None and slowest.seconds > seconds:
        return Eta(urls, brings, left, slowest.seconds, slowest.host)
    return Eta(urls, brings, left, seconds)


def describe_eta(view: Eta, refreshed: int = 0) -> str:
    """Describe the remaining work in one line, for every interface. Return "" while nothing is known.

    `refreshed` is the number of pages that were fetched again.
    """
    if refreshed and not view.urls:
        return "no new URLs; known pages are fetched again"
    if view.brings is None:
        if view.seconds is None:
            return ""
        return f"about {several(round(view.urls), 'URL')}, at least {duration(view.seconds)} because of {view.host}"
    if not round(view.urls):
        return "no URL waits"
    if view.left is None or view.seconds is None:
        waiting = several(round(view.urls), "URL", "wait")
        return f"about {waiting} and the crawl grows: each page adds {view.brings:.1f} new ones"
    time = duration(view.seconds)
    if view.limited:
        return f"{several(round(view.left), 'page')} until max_pages is reached, {time} at this rate"
    time = f"at least {time} because of {view.host}" if view.host else f"{time} at this rate"
    return f"about {several(round(view.left), 'URL')}, {time}; each page adds {view.brings:.2f} new ones"


def duration(seconds: float) -> str:
    """Format a length of time in a suitable unit."""
    if 0.0 < seconds < 0.1:
        return f"{math.ceil(1000.0 * seconds)} ms"
    for unit, length in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10.0 else f"{seconds:.0f} s"
