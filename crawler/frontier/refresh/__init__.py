"""When which known page is asked again: the refresh frontier.

schedule.py   deadlines under two levels, hosts, signals, exploration: the page to ask now
heaps.py      many meldable heaps over one array of nodes
numbering.py  64-bit keys to small numbers, growing without a burst of work
settings.py   what can be set, outcomes, views
refreshing.py the schedule joined to frontier, pages and store
validators.py conditional requests, and whose validators can be believed
state.py      records in the store, and the schedule rebuilt from them
arms.py       several policies side by side, as one schedule
levels.py     equal levels in all processes: how the rate moves between them

Estimators and values are `crawler.freshness`'s; the share with discovery is `frontier/share.py`.
Benchmark: scripts/bench/refresh.py.
"""

from crawler.frontier.refresh.arms import Arms
from crawler.frontier.refresh.schedule import Schedule
from crawler.frontier.refresh.settings import RefreshOutcome, Settings

__all__ = ["Arms", "RefreshOutcome", "Schedule", "Settings"]
