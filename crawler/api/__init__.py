"""The Python API: what `import crawler` offers.

crawl.py      Crawl: a crawl as an object, its hooks; configure
calls.py      run, run_async, fetch: a whole crawl, or one page, in a call
page.py       Page, Element, Elements
request.py    Request: what a callback asks for, and its form in the store
delivery.py   pages on their way to the user's code, each at least once
items.py      items to JSONL, CSV, Parquet
follow_rules.py  which links are followed
"""

from crawler.api.calls import fetch, run, run_async
from crawler.api.crawl import Crawl, Hooks, configure, entry_point
from crawler.api.page import Element, Elements, Page
from crawler.api.request import Request

__all__ = [
    "Crawl",
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
