"""The Python API, which `import crawler` provides.

crawl.py         Crawl: a crawl as an object, its hooks; configure
calls.py         run, run_async, fetch: a whole crawl, or one page, in a single call
page.py          Page, Element, Elements
request.py       Request: a request made by a callback, and its form in the store
delivery.py      delivers each page to the user's code at least once
items.py         writes items to JSONL or CSV
parquet_items.py writes items to Parquet, with columns as wide as their values
follow_rules.py  rules for the links to follow
"""

from crawler.api.calls import fetch, run, run_async
from crawler.api.crawl import Crawl, Hooks, configure, entry_point
from crawler.api.page import Element, Elements, Page
from crawler.api.request import Request
from crawler.errors import CrawlerError

__all__ = [
    "Crawl",
    "CrawlerError",
    "Element",
    "Elements",
    "Hooks",
    "Page",
    "Request",
    "configure",
    "entry_point",
    "fetch",
    "run",
    "run_async",
]
