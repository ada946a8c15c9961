"""The refresh frontier: which known page is asked again, and when.

schedule.py   deadlines under two levels, hosts, signals, exploration: the page to ask
tables.py     what is kept of pages, directories and hosts: a row each, and the owner above
steering.py   the common level, the levels of saturated hosts, and the rate they answer to
deadlines.py  when a page is due: its value against the level, by its clock
queues.py     where pages, directories and hosts stand, and which page is first
exploration.py  the page longest unvisited has a share of the fetches
overview.py   what can be asked of a schedule without changing it: pages, hosts, what a store keeps; its invariants
expectation.py  how fresh the copies are, and what more rate would bring
importance.py how important pages are: requests a day, served ones and a prior where nobody asks (mu of the model)
sources.py    how often it pays to read a sitemap or feed
heaps.py      many meldable heaps over one array of nodes
numbering.py  64-bit keys to small numbers, growing without a burst of work
settings.py   settings, outcomes, views
refreshing.py the schedule joined to frontier, pages and store
validators.py conditional requests, and which validators can be believed
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
