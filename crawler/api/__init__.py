"""The Python API, which `import crawler` provides.

crawl.py         Crawl: a crawl as an object
calls.py         run, run_async, fetch: a whole crawl, or one page, in a single call
options.py       checks the arguments of a crawl; configure
hooks.py         the user's callables: filter, extractor, sink
stored.py        reads stored pages
page_queue.py    the pages that wait for a loop over `Crawl.pages()`
page.py          Page, Element, Elements
request.py       Request: a request made by a callback, and its form in the store
delivery.py      delivers each page to the user's code at least once
callbacks.py     the callbacks by their stored names, and the requests that they yield
item_files.py    the items files, one or one for each type of items; their formats
items.py         writes items to JSONL or CSV
parquet_items.py writes items to Parquet, with columns as wide as their values
follow_rules.py  rules for the links to follow
"""

from crawler.api.calls import fetch, run, run_async
from crawler.api.crawl import Crawl
from crawler.api.hooks import Hooks, entry_point
from crawler.api.options import configure
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
