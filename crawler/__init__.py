"""crawler: a Mercator-style web crawler.

The life of a URL, stage by stage (`process/` knows the order; `crawler/README.md` has the map and the rules):

    frontier --> fetcher --> extract --> urlfilter --> splitter --(other hosts)--> peers
       ^                                                  | own hosts
       |                                             CLOCK cache --> DUE <-- from peers
       +------------------ new URLs ------------------------------------+

frontier    to-do URLs on disk, a polite queue per host
robots      robots.txt rules and what is known of each authority
fetcher     one HTTP request with every limit, ended in one recorded outcome
extract     links of pages, sitemaps and feeds
urlfilter   scope, include and exclude, traps
splitter    links of other processes' hosts, in durable batches over TCP
due         the Duplicate URL Eliminator: each URL reaches the frontier once
freshness   when a known page is worth fetching again (the crawl value)
pages       the page cache: WARC segments, captures; the formats of exports
export      exports of a crawl, live or at rest, by several processes
audit       faults of a site that was crawled
lab         the experiments of the papers, on the same code

Below the stages: urls (canonical form, fingerprint, CLOCK cache), storage (one
store, one commit point), records, config, clock, errors. Above them: process (one
process), crawl (what a crawl is), supervision (N processes), upkeep (a crawl at
rest), serve, admin, cli.
"""

import warnings
from typing import TYPE_CHECKING

from crawler import kernel_selection

if TYPE_CHECKING:
    from crawler.api import Crawl, Element, Elements, Hooks, Page, Request, configure, fetch, run, run_async

__all__ = [
    "Crawl",
    "Element",
    "Elements",
    "Hooks",
    "Page",
    "Request",
    "configure",
    "fetch",
    "run",
    "run_async",
]

kernel_selection.choose(__path__[0])
# `re` warns of patterns that a later Python may read in another way: of users' patterns, on their screens.
warnings.filterwarnings("ignore", category=FutureWarning, module=r"crawler\.")


def __getattr__(name: str) -> object:
    """The Python API (`crawler/api`), imported when it is asked for: `import crawler` alone stays light."""
    if name == "__version__":
        from crawler.version import __version__

        return __version__
    if name not in __all__:
        raise AttributeError(f"module 'crawler' has no attribute {name!r}")
    from crawler import api

    return getattr(api, name)
