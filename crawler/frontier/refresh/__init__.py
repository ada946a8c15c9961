"""The refresh frontier: decides which known page is fetched again, and when.

`README.md` lists the modules. The estimators and crawl values are in `crawler.freshness`; `frontier/share.py`
divides the fetches between discovery and refresh. Benchmark: scripts/bench/refresh.py.
"""

from crawler.frontier.refresh.arms import Arms
from crawler.frontier.refresh.schedule import Schedule
from crawler.frontier.refresh.settings import RefreshOutcome, Settings

__all__ = ["Arms", "RefreshOutcome", "Schedule", "Settings"]
