"""The refresh frontier: decides which known page is fetched again, and when.

`README.md` lists the modules. The estimators and crawl values are in `crawler.freshness`; `frontier/share.py`
divides the fetches between discovery and refresh. Benchmark: scripts/bench/refresh.py.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crawler.frontier.refresh.arms import Arms
    from crawler.frontier.refresh.schedule import Schedule
    from crawler.frontier.refresh.settings import RefreshOutcome, Settings

__all__ = ["Arms", "RefreshOutcome", "Schedule", "Settings"]

_MODULES = {"Arms": "arms", "RefreshOutcome": "settings", "Schedule": "schedule", "Settings": "settings"}


def __getattr__(name: str) -> object:
    """Import a class on first use, because a crawl without refresh needs none of the modules behind `Arms`."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
