"""The refresh frontier: which known page is asked again, and when.

`README.md` lists the modules. Estimators and values are `crawler.freshness`'s; the share with
discovery is `frontier/share.py`.
Benchmark: scripts/bench/refresh.py.
"""

from crawler.frontier.refresh.arms import Arms
from crawler.frontier.refresh.schedule import Schedule
from crawler.frontier.refresh.settings import RefreshOutcome, Settings

__all__ = ["Arms", "RefreshOutcome", "Schedule", "Settings"]
